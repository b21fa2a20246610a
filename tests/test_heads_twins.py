"""Patching between twins: a planted head carries the whole cue, others none of it; all cross heads are the twin; small
differences add up over direct paths."""

from collections import Counter
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from built import ONE_LAYER, built, composed, sentence_piece
from datasets import Dataset
from torch import nn

from headcount.data.batches import Sentences
from headcount.data.tokenizer import BOS, EOS
from headcount.heads.analysis import Analysis, Settings
from headcount.heads.evaluation_set import evaluation_set, stratified
from headcount.heads.interface import Heads, Layer
from headcount.heads.patching import Tokens, TwinPairs, each_head, each_sender, places, twin_effects, twins
from headcount.heads.paths import SOURCE, path_effects, paths, paths_of
from headcount.heads.twin_shares import direct_paths, move_shares, twin_shares

VOCAB = 30
FIRST = Layer("decoder", 1)  # reads the translation alone, so its outputs are the twin's


def heads_of(**changes):
    torch.manual_seed(1)
    shape = {**ONE_LAYER, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": VOCAB, **changes}
    return Heads(built("model/nano", **shape).eval())


@pytest.fixture(scope="module")
def heads():
    return heads_of()


def random_pairs(lengths, others, seed=0):
    """Random pairs of these source lengths; a token has the twin's token at the same place, if there is one."""
    random = np.random.default_rng(seed)

    def drawn(sizes):
        return [random.integers(4, VOCAB, size).tolist() for size in sizes]

    source, twin = drawn(lengths), drawn(others)
    ends = random.integers(2, 8, (2, len(lengths)))
    starts = drawn([2] * len(lengths))
    right, wrong = ([start + end for start, end in zip(starts, drawn(side), strict=True)] for side in ends)
    place = [
        np.array([*(i if i < other else -1 for i in range(own)), other])
        for own, other in zip(lengths, others, strict=True)
    ]
    return TwinPairs(*map(Sentences.of, (source, right, twin, wrong)), place)


@pytest.fixture(scope="module")
def pairs():
    return random_pairs([3, 5, 9, 4, 7, 2], [5, 5, 6, 2, 8, 2])


EQUAL = [3, 5, 9, 4, 7, 2]


def patch(heads, pairs, *names):
    """Effects of patching these heads together."""
    return twin_effects(heads, pairs, each_sender(heads)[[heads.number(name) for name in names]].any(dim=0)[None])


def split(text):
    """A sentence whose words are cut into tokens at each hyphen."""
    words = text.split()
    owner = [number for number, word in enumerate(words) for _ in word.split("-")]
    return Tokens([word.replace("-", "") for word in words], np.array(owner, dtype=np.int64))


@pytest.mark.parametrize(
    ("sentence", "twin", "wanted"),
    [
        ("the dog-s sleep .", "the dog sleep .", [0, 1, 1, 2, 3, 4]),
        ("the dog sleep-s .", "the d-o-gs sleep .", [0, 3, 4, 4, 5, 6]),  # word by word
        ("he did not go .", "he went .", [0, 1, 1, 1, 2, 3]),  # a block
        ("he went .", "he did not go .", [0, 3, 4, 5]),
        ("A b c", "A c", [0, -1, 1, 2]),
        ("A c", "A b c", [0, 2, 3]),
        ("L-en-a cat ;", "Lena cat", [0, 0, 0, 1, -1, 2]),
        ("", "", [0]),
    ],
)
def test_words_are_aligned_and_changed_words_to_those_in_their_place(sentence, twin, wanted):
    assert places(split(sentence), split(twin)).tolist() == wanted


def test_a_source_that_the_model_does_not_read_has_its_end_alone():
    hidden = Tokens(["a", "b"], np.zeros(0, dtype=np.int64))
    assert places(hidden, hidden).tolist() == [0]


def forced(heads, source, target):
    """Decoder output of one pair, [target, d_model]."""
    ids = torch.tensor([[*source, EOS]])
    return heads.model(ids, torch.ones_like(ids, dtype=torch.bool), torch.tensor([[BOS, *target]]))[0]


def log_odds(heads, source, right, wrong, outputs=({}, {})):
    """Log-odds of one pair, one translation at a time; outputs: what replaces heads, for each translation."""
    found = []
    for target, patches in zip((right, wrong), outputs, strict=True):
        with heads.patched(patches):
            log_probs = heads.model.output(forced(heads, source, target)).log_softmax(dim=-1)
        found.append(log_probs[torch.arange(len(target) + 1), [*target, EOS]].sum().item())
    return found[0] - found[1]


@pytest.mark.medium
@torch.no_grad()
def test_many_pairs_and_heads_at_once_are_each_pair_and_head_alone(heads, pairs):
    together = twin_effects(heads, pairs, each_head(heads)[: len(heads)])
    for row in (0, 2, 4):  # the twin is longer, shorter, longer
        source, right, twin, wrong = (side.row(row) for side in (pairs.source, pairs.right, pairs.twin, pairs.wrong))
        assert together["base"][row] == pytest.approx(log_odds(heads, source, right, wrong), abs=1e-5)
        assert together["twin"][row] == pytest.approx(log_odds(heads, twin, right, wrong), abs=1e-5)
        records = [[recorded(heads, text, target) for text in (source, twin)] for target in (right, wrong)]
        for number, head in enumerate(heads.names):
            outputs = []
            for both in records:
                own, other = (record[head.place][0][0, head.head - 1] for record in both)
                if head.kind == "encoder":
                    other = torch.stack([own[i] if j < 0 else other[j] for i, j in enumerate(pairs.places[row])])
                outputs.append({head: other})
            alone = log_odds(heads, source, right, wrong, outputs)
            assert together["patched"][number, row] == pytest.approx(alone, abs=1e-5), head


def recorded(heads, source, target):
    with heads.recorded() as record:
        forced(heads, source, target)
    return record


def test_all_cross_heads_together_are_the_twin(heads, pairs):
    cross = [head for head in heads.names if head.kind == "cross"]
    found = patch(heads, pairs, *cross)
    assert found["patched"][0] == pytest.approx(found["twin"], abs=1e-5)
    fewer = patch(heads, pairs, *cross[1:])
    assert abs(fewer["patched"][0] - fewer["twin"]).min() > 1e-4


def test_a_heads_own_output_moves_nothing(heads, pairs):
    own = TwinPairs(pairs.source, pairs.right, pairs.source, pairs.wrong, [np.arange(n) for n in pairs.source.lengths])
    found = twin_effects(heads, own, each_head(heads))
    assert found["patched"] == pytest.approx(found["base"][None].repeat(len(each_head(heads)), 0), abs=1e-5)
    moved = path_effects(heads, own, list(range(len(heads) + 1)))
    for name in ("total", "direct", "path"):
        assert abs(moved[name] - moved["base"]).max() < 1e-5


def test_the_whole_encoder_output_is_the_twin_where_all_tokens_are_aligned(heads, pairs):
    equal = random_pairs(EQUAL, EQUAL)
    found = twin_effects(heads, equal, each_head(heads)[:1])
    assert found["memory"] == pytest.approx(found["twin"], abs=1e-5)
    assert path_effects(heads, equal, [len(heads)])["total"][0] == pytest.approx(found["twin"], abs=1e-5)
    other = twin_effects(heads, pairs, each_head(heads)[:1])
    assert abs(other["memory"] - other["twin"]).max() > 1e-3


def restrict(linear, inputs=None, outputs=None):
    """Zero all weights but those from `inputs` to `outputs`, and the biases."""
    kept = torch.zeros_like(linear.weight)
    kept[outputs or slice(None), inputs or slice(None)] = 1
    linear.weight.data *= kept
    if linear.bias is not None:
        linear.bias.data.zero_()


@pytest.fixture(scope="module")
def planted():
    """The cue goes from the source through encoder1.1, cross1.1 and decoder2.2 to the logits: each writes into numbers
    of the residual stream that only the next one reads."""
    heads = heads_of()
    model = heads.model
    source, first, second, third = (slice(start, start + 4) for start in range(0, 16, 4))
    chain = {"encoder1.1": (source, first), "cross1.1": (first, second), "decoder2.2": (second, third)}
    for layer, module in heads.layers.items():
        ends, head = next(
            ((ends, heads.names[heads.number(name)]) for name, ends in chain.items() if name.startswith(str(layer))),
            (None, None),
        )
        if ends is None:
            restrict(module.output, slice(0, 0), slice(0, 0))
            continue
        for linear in (module.key, module.value):
            restrict(linear, inputs=ends[0])
        restrict(module.output, slice((head.head - 1) * 8, head.head * 8), ends[1])
    for layer in [*model.encoder, *model.decoder]:
        for residual in layer.residuals:
            residual.norm = nn.Identity()
        for linear in (each for each in layer.feed_forward.modules() if isinstance(each, nn.Linear)):
            restrict(linear, slice(0, 0), slice(0, 0))
    model.encoder_norm = model.decoder_norm = nn.Identity()
    model.output = nn.Linear(16, VOCAB, bias=False)
    with torch.no_grad():
        model.source_embedding.weight[:, 4:] = 0
        model.source_embedding.weight *= 20
    restrict(model.output, inputs=third)
    return heads


CHAIN = ("encoder1.1", "cross1.1", "decoder2.2")


def test_planted_heads_carry_the_whole_cue_and_the_others_nothing_of_it(planted):
    found = twin_effects(planted, random_pairs(EQUAL, EQUAL), each_head(planted)[: len(planted)])
    assert abs(found["twin"] - found["base"]).min() > 1e-3
    for number, head in enumerate(planted.names):
        wanted = found["twin"] if str(head) in CHAIN else found["base"]
        assert found["patched"][number] == pytest.approx(wanted, abs=1e-5), head


def test_planted_paths_are_found_and_no_others(planted):
    found = path_effects(planted, random_pairs(EQUAL, EQUAL), list(range(len(planted) + 1)))
    names = [*map(str, planted.names), SOURCE]
    links = set(zip((SOURCE, *CHAIN), CHAIN, strict=False))
    ends = [(names[one], names[other]) for one, other in paths_of(planted, list(range(len(planted) + 1)))]
    assert links < set(ends)
    for row, end in enumerate(ends):
        wanted = found["twin"] if end in links else found["base"]
        assert found["path"][row] == pytest.approx(wanted, abs=1e-5), end
    for row, name in enumerate(names):
        assert found["direct"][row] == pytest.approx(found["twin" if name == CHAIN[-1] else "base"], abs=1e-5), name


@pytest.mark.medium
def test_small_effects_add_up_over_the_direct_paths():
    """At first order, a sender's total effect is its direct effect and those of its paths to all receivers."""
    heads = heads_of(tied_embeddings=False)
    heads.model.double()
    half = VOCAB // 2
    with torch.no_grad():
        embedding = heads.model.source_embedding.weight
        embedding[half:] = embedding[:half] + 1e-5 * torch.randn(half, embedding.shape[1], dtype=torch.float64)
    pairs = random_pairs(EQUAL, EQUAL)
    source = [(np.array(pairs.source.row(row)) % (half - 4) + 4).tolist() for row in range(len(EQUAL))]
    twin = [[piece + half for piece in each] for each in source]
    close = TwinPairs(Sentences.of(source), pairs.right, Sentences.of(twin), pairs.wrong, pairs.places)
    senders = list(range(len(heads) + 1))
    found = path_effects(heads, close, senders)
    moved = {name: found[name] - found["base"] for name in ("total", "direct", "path")}
    sender_of = paths_of(heads, senders)[:, 0]
    for number, sender in enumerate(senders):
        total = moved["direct"][number] + moved["path"][sender_of == number].sum(axis=0)
        if sender == len(heads) or heads.names[sender].place != FIRST:
            assert abs(moved["total"][number]).max() > 1e-8
        assert total == pytest.approx(moved["total"][number], rel=2e-3, abs=1e-9)


@pytest.mark.parametrize("size", [2000, 4000])
@pytest.mark.parametrize("most", [120, 160, 500])
def test_sentences_are_taken_from_each_cell_and_side_alike(size, most):
    # As in the test set of the built-in corpus: 16 cells in turn, then the same with the other answers.
    labels = [(f"phenomenon {row // 2 % 8}", ("easy", "hard")[row % 2], row // 16 % 2) for row in range(size)]
    columns = {"source": ["a"] * size, "target": ["a"] * size, "contrast": ["b"] * size, "twin": ["b"] * size}
    names = {
        name: [str(label[place]) for label in labels] for place, name in enumerate(("phenomenon", "grade", "side"))
    }
    words = SimpleNamespace(encode=lambda texts: [[4]] * len(texts))
    run = SimpleNamespace(translator=words, tokenizer=SimpleNamespace(source=words, target=words))
    test = evaluation_set(run, Dataset.from_dict(columns | names), most)
    assert len(test) == most
    for keys in (("phenomenon",), ("phenomenon", "grade"), ("phenomenon", "grade", "side")):
        found = Counter(zip(*(test.rows[key] for key in keys), strict=True))
        assert len(found) == 2 ** (2 + len(keys))
        assert max(found.values()) - min(found.values()) <= 1


def test_few_phenomena_are_taken_whole_and_sentences_without_any_from_all_parts():
    taken = stratified([("a", "")] * 50 + [("b", "")] * 3 + [("c", "")] * 20, 13)
    assert np.histogram(taken, [0, 50, 53, 73])[0].tolist() == [5, 3, 5]
    assert stratified([("", "")] * 9, None).tolist() == list(range(9))
    assert (np.histogram(stratified([("", "")] * 1000, 100), 4)[0] > 15).all()


def shares_of(random, pairs=40, share=0.3, way=-4.0):
    ways = way + random.standard_normal((2, pairs)).ravel()
    moves = np.stack([share * ways + random.standard_normal(2 * pairs), random.standard_normal(2 * pairs)])
    phenomenon = np.array(["case", "order"]).repeat(pairs)
    return move_shares(["cross1.1", "cross1.2"], 1 + moves, np.ones(2 * pairs), 1 + ways, phenomenon, draws=200)


@pytest.mark.medium
def test_shares_are_ratios_of_means_with_simultaneous_intervals():
    base, twin = np.array([2.0, 1, 3, 3]), np.array([-2.0, 1, -3, 1])
    patched = np.array([[1.0, 2, 3, 3], [-2, 1, -3, 1]])
    found = move_shares(["a", "b"], patched, base, twin, np.array(["x", "x", "y", "y"]), draws=10)
    assert found.columns == ("x", "y")
    assert found.whole.tolist() == [-2, -4]
    random = np.random.default_rng(0)
    tables = [shares_of(random) for _ in range(200)]
    truth = np.array([[0.3, 0.3], [0, 0]])
    missed = np.mean([((table.low > truth) | (table.high < truth)).any() for table in tables])
    assert missed < 0.12
    assert np.mean([table.estimate for table in tables], axis=0) == pytest.approx(truth, abs=0.01)
    assert np.mean([(table.high[0] < 0).all() | (table.low[0] > 0).all() for table in tables]) > 0.9
    # Twins that the model does not distinguish: there is no way to be a share of.
    assert np.isnan(shares_of(random, way=0.0, share=0.0).estimate).all()


def test_one_pair_gives_no_interval():
    found = move_shares(["a"], np.array([[1.5]]), np.ones(1), np.array([3.0]), np.array(["x"]))
    assert not ((found.low > 0) | (found.high < 0)).any()
    assert not (found.low == found.high).any()


ROWS = [
    ("in the house he sleeps", "into the house he sleeps", "im Haus", "ins Haus", "case", "easy"),
    ("he did not go home", "he went home", "er ging nicht", "er ging", "negation", "hard"),
] * 6


@pytest.fixture(scope="module")
def analysis():
    columns = ("source", "twin", "target", "contrast", "phenomenon", "grade")
    rows = Dataset.from_list([dict(zip(columns, row, strict=True)) for row in ROWS])
    tokenizer = sentence_piece(290).train(rows["source"], rows["target"])
    translator = SimpleNamespace(encode=tokenizer.encode)
    torch.manual_seed(1)
    model = built("model/nano", **ONE_LAYER, vocab_size=tokenizer.vocab_size).eval()
    run = SimpleNamespace(model=model, tokenizer=tokenizer, translator=translator)
    conf = composed("heads")
    settings = {field.name: conf[field.name] for field in fields(Settings)}
    found = Analysis(run, Settings(**settings | {"path_pairs": 4, "path_senders": 2}))
    found.__dict__["test"] = found.__dict__["valid"] = evaluation_set(run, rows)
    return found


def test_the_arrays_of_a_corpus_give_shares_by_phenomenon(analysis):
    done = []
    arrays = twins(analysis, done.append)
    assert sum(done) == 12
    assert arrays["patched"].shape == (6, 12)
    assert arrays["layers"].shape == (3, 12)
    assert arrays["same_length"].tolist() == [a == b for a, b in zip(*lengths(analysis), strict=True)]
    cross = arrays["layer"].tolist().index("cross1")
    assert arrays["layers"][cross] == pytest.approx(arrays["twin"], abs=1e-5)
    shares = twin_shares(arrays, "layer")
    assert shares.estimate[cross] == pytest.approx(1, abs=1e-3)


def lengths(analysis):
    encode = analysis.run.tokenizer.encode
    return [[len(ids) for ids in encode([row[side] for row in ROWS])] for side in (0, 1)]


def test_the_circuit_of_a_phenomenon_is_its_clear_paths(analysis):
    arrays = paths(analysis, lambda done: None)
    assert arrays["base"].shape == (4,)
    assert len(arrays["sender"]) == 3
    assert arrays["sender"][-1] == SOURCE
    assert arrays["path"].shape == (len(arrays["path_sender"]), 4)
    found = direct_paths(arrays)
    assert found.columns == ("case", "negation")
    receivers = {row.partition(" > ")[2] for row in found.rows if row.startswith(SOURCE)}
    assert receivers <= {*map(str, analysis.heads.names)}
    assert sum(row.endswith(" > output") for row in found.rows) == 2  # the source has no path past all heads

"""heads.csv recomputed from the weights and the text alone, in plain numpy and float64, with nothing of headcount."""

import csv

import numpy as np
import pytest
from conftest import completed
from datasets import Dataset
from safetensors.numpy import load_file
from scipy import stats
from sentencepiece import SentencePieceProcessor

pytestmark = pytest.mark.medium

HEADS, BOS, EOS = 2, 2, 3
NAMES = [f"{kind}1.{head}" for kind in ("encoder", "decoder", "cross") for head in (1, 2)]
SMALL = (
    *("threads=1", "model.d_model=32", "model.encoder_layers=1", "model.decoder_layers=1", "model.d_feed_forward=48"),
    *(f"model.num_heads={HEADS}", "data.train_size=3000", "data.valid_size=24", "data.test_size=64"),
    *("tokenizer.vocab_size=400", "data.batch_tokens=1024", "steps=12", "schedule.warmup_steps=3"),
    *("validation.every=12", "search=greedy", "search.max_ratio=0", "search.max_extra=2", "optimizer.lr=0.02"),
)


class Outside:
    """The run as somebody else reads it."""

    def __init__(self, folder):
        self.weights = {
            name: value.astype(np.float64) for name, value in load_file(folder / "model.safetensors").items()
        }
        self.pieces = SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        (prepared,) = (folder.parents[1] / "data" / "prepared").glob("*/test.arrow")
        self.test = list(Dataset.from_file(str(prepared)))
        self.pairs = [row for row in self.test if row["contrast"] and row["twin"]]
        with (folder / "heads" / "heads.csv").open(encoding="utf-8") as file:
            self.csv = {(row["endpoint"], row["column"], row["head"]): row for row in csv.DictReader(file)}

    def linear(self, name, x):
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name, x):
        x = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
        return x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attention(self, name, x, memory, gates, causal):
        kind = {"encoder.0.self": "encoder", "decoder.0.self": "decoder", "decoder.0.cross": "cross"}[name]
        query, key, value = (
            self.linear(f"{name}_attention.{part}", of).reshape(len(of), HEADS, -1).transpose(1, 0, 2)
            for part, of in (("query", x), ("key", memory), ("value", memory))
        )
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(query.shape[-1])
        if causal:
            scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        heads = weights @ value
        for number in range(HEADS):
            heads[number] *= gates.get(f"{kind}1.{number + 1}", 1.0)
        return self.linear(f"{name}_attention.output", heads.transpose(1, 0, 2).reshape(len(x), -1))

    def embedded(self, ids):
        d_model = self.weights["source_embedding.weight"].shape[1]
        angle = np.arange(len(ids))[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
        places = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(len(ids), -1)
        return self.weights["source_embedding.weight"][ids] * np.sqrt(d_model) + places

    def feed_forward(self, side, place, x):
        y = self.norm(f"{side}.0.residuals.{place}.norm", x)
        y = np.maximum(self.linear(f"{side}.0.feed_forward.0", y), 0)
        return x + self.linear(f"{side}.0.feed_forward.3", y)

    def log_prob(self, source, target, gates=None):
        """log p(target | source)."""
        gates = gates or {}
        source, target = ([*self.pieces.encode(text), EOS] for text in (source, target))
        x = self.embedded(source)
        y = self.norm("encoder.0.residuals.0.norm", x)
        x = self.feed_forward("encoder", 1, x + self.attention("encoder.0.self", y, y, gates, False))
        memory = self.norm("encoder_norm", x)
        x = self.embedded([BOS, *target[:-1]])
        y = self.norm("decoder.0.residuals.0.norm", x)
        x = x + self.attention("decoder.0.self", y, y, gates, True)
        y = self.norm("decoder.0.residuals.1.norm", x)
        x = x + self.attention("decoder.0.cross", y, memory, gates, False)
        hidden = self.norm("decoder_norm", self.feed_forward("decoder", 2, x))
        logits = hidden @ self.weights["source_embedding.weight"].T
        logits -= logits.max(axis=-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return logits[np.arange(len(target)), target].sum()

    def odds(self, row, source="source", **changes):
        return self.log_prob(row[source], row["target"], **changes) - self.log_prob(
            row[source], row["contrast"], **changes
        )

    def figure(self, endpoint, column, head, name="estimate"):
        return float(self.csv[endpoint, column, head][name])


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    completed("train", *SMALL, "hydra.run.dir=runs/a", cwd=folder)
    completed("heads", "run=runs/a", "parts=[ablation]", "valid=null", cwd=folder)
    return Outside(folder / "runs" / "a")


@pytest.fixture(scope="module")
def ablated(outside):
    """Losses [setting, sentence] and margins [setting, pair]; setting 0 is the whole model."""
    settings = [{}, *({head: 0.0} for head in NAMES)]
    losses = [[-outside.log_prob(row["source"], row["target"], gates) for row in outside.test] for gates in settings]
    margins = [[outside.odds(row, gates=gates) for row in outside.pairs] for gates in settings]
    return np.array(losses), np.array(margins)


def test_zero_ablation(outside, ablated):
    phenomenon = np.array([row["phenomenon"] for row in outside.pairs])
    settings = [{}, *({head: 0.0} for head in NAMES)]
    twins = [[outside.odds(row, "twin", gates=gates) for row in outside.pairs] for gates in settings]
    sensitive = 100.0 * (ablated[1] > np.array(twins))
    for number, head in enumerate(NAMES, start=1):
        change = [values[number] - values[0] for values in ablated]
        right = 100.0 * (ablated[1] > 0)
        assert outside.figure("zero.loss", "loss", head) == pytest.approx(change[0].mean(), abs=2e-4)
        for name in set(phenomenon):
            own = phenomenon == name
            assert outside.figure("zero.margin", name, head) == pytest.approx(change[1][own].mean(), abs=2e-4)
            expected = (right[number] - right[0])[own].mean()
            assert outside.figure("zero.accuracy", name, head) == pytest.approx(expected, abs=2e-4)
            told = outside.figure("zero.sensitivity", name, head)
            assert told == pytest.approx(sensitive[number, own].mean() - sensitive[0, own].mean(), abs=2e-4)


def test_an_interval(outside, ablated):
    """Bootstrap-t over sentences, one family: other random numbers, and loops in place of matrix products."""
    phenomenon, random = np.array([row["phenomenon"] for row in outside.pairs]), np.random.default_rng(77)
    columns = [(ablated[0][1:] - ablated[0][0], np.arange(len(outside.test)))]
    numbers = np.array([row for row, each in enumerate(outside.test) if each["contrast"]])
    for name in sorted(set(phenomenon)):
        columns.append(((ablated[1][1:] - ablated[1][0])[:, phenomenon == name], numbers[phenomenon == name]))

    def z(t, units):
        return stats.norm.isf(stats.t.sf(t, units - 1))

    largest = []
    for _ in range(1000):
        times, worst = np.bincount(random.integers(0, len(outside.test), len(outside.test)), minlength=64), 0.0
        for values, rows in columns:
            drawn = np.repeat(values, times[rows], axis=1)
            if drawn.shape[1] > 1:
                shift = abs(drawn.mean(axis=1) - values.mean(axis=1))
                error = drawn.std(axis=1, ddof=1) / np.sqrt(drawn.shape[1])
                error = np.maximum(error, values.std(axis=1, ddof=1) / np.sqrt(values.shape[1]) / 3)
                worst = max(worst, z(shift / error, values.shape[1]).max())
        largest.append(worst)
    critical = np.quantile(largest, 0.95)
    for head, values in zip(NAMES, columns[0][0], strict=True):
        half = stats.t.isf(stats.norm.sf(critical), len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
        low, high = (outside.figure("zero.loss", "loss", head, end) for end in ("low", "high"))
        assert (high - low) / 2 == pytest.approx(half, rel=0.1)

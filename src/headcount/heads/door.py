"""The heads of a run from Python: switch off, patch, read, with labelled arrays.

run = headcount.open_run("runs/latest")
with run.heads.off("cross2.1", "encoder1.3"):
    run.translate("The old doctor sleeps.")
run.loss(sources, targets, off=[[], ["cross2.1"]])
cache = run.cache("The old doctors sleep.", "Die alten Ärzte schlafen.")
with run.heads.patch({"encoder2.1": cache}, source="The old doctor sleeps."):
    run.loss("The old doctor sleeps.", "Der alte Arzt schläft.")
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor, nn

from headcount.data.batches import Sentences, collate
from headcount.errors import InputError
from headcount.heads.interface import Head, Heads, Layer
from headcount.heads.likelihood import token_log_probs
from headcount.heads.observed import recorded_attention
from headcount.heads.patching import Tokens, places
from headcount.heads.spelling import Spelled
from headcount.model.encoder_decoder import AttentionWeights
from headcount.run import opened
from headcount.run.arrays import padded
from headcount.run.opened import load as load

END, BEGIN = "</s>", "<s>"
HOOKS = {
    "encoder": "encoder_blocks.{}.attn",
    "decoder": "decoder_blocks.{}.self_attn",
    "cross": "decoder_blocks.{}.cross_attn",
}
FIELDS = {"z": "z", "q": "query", "k": "key", "v": "value"}
Texts = str | Sequence[str]


class HeadCache(NamedTuple):
    """What a head computed for one pair of sentences.

    z [query, d_head]: its output before gates and W_O. pattern [query, key]: its weights, which sum to 1 but for a
    Gaussian window. norm [query, key]: the weight times ||value W_O||: Kobayashi et al. 2020, "Attention is not only a
    weight", equation 4. query, key, value [position, d_head]: as its kind reads them; `key` is `value` for one that
    reads no keys. queries, keys: the tokens. gate [query, 1 or d_head]: of `model.head_gate`, by which z is multiplied
    already; None without.
    """

    z: Tensor
    pattern: Tensor
    norm: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    queries: list[str]
    keys: list[str]
    gate: Tensor | None = None


@dataclass(frozen=True)
class Cache:
    """Every head of a run on one pair, with the target fed in: `cache["cross2.1"].pattern`.

    source: the text. predicted: the token and its number that each position of the decoder predicts. residual: the
    residual stream after each layer, "encoder1" to "decoder2", [position, d_model].
    """

    source: str
    predicted: tuple[list[str], Tensor]
    heads: dict[Head, HeadCache]
    residual: dict[str, Tensor]

    def __getitem__(self, head: Head | str) -> HeadCache:
        found = self.heads.get(head if isinstance(head, Head) else Head.parse(head))  # type: ignore[arg-type]
        if found is None:
            raise InputError(f"{head}: no head of this model, which has {', '.join(map(str, self.heads))}")
        return found

    def by_hook(self) -> dict[str, Tensor]:
        """The same by TransformerLens' names: z, q, k and v [1, position, head, d_head], patterns [1, head, query,
        key]."""
        hooks: dict[str, Tensor] = {}
        for layer in dict.fromkeys(head.place for head in self.heads):
            own = [cache for head, cache in self.heads.items() if head.place == layer]
            for short, name in FIELDS.items():
                hooks[f"{hook_name(layer)}.hook_{short}"] = torch.stack([getattr(each, name) for each in own], 1)[None]
            hooks[f"{hook_name(layer)}.hook_pattern"] = torch.stack([each.pattern for each in own])[None]
        return hooks


class RunHeads(Heads):
    """The heads of a run, see `Heads`."""

    def __init__(self, run: "Run") -> None:
        super().__init__(run.model)
        self._run = run

    def patch(self, outputs: Mapping[Any, Cache], source: str | None = None) -> AbstractContextManager[None]:
        """Give heads the outputs that they had on another pair.

        source: the sentence that will run; heads of the encoder are then patched word by word, see `Run.align`, and
        keep their own output at tokens without a counterpart. None: position by position. Raises InputError, in the
        pass, for another number of tokens.
        """
        values = {}
        for head, cache in outputs.items():
            name = self.names[self.number(head)]
            if not isinstance(cache, Cache):
                raise InputError(f"{head}: patch takes what `cache` of a run gives; `patched` takes tensors")
            values[name] = cache[name].z
            if source is not None and name.kind == "encoder":
                there = torch.from_numpy(self._run.align(source, cache.source)).to(cache[name].z.device)
                values[name] = cache[name].z[there].where(there[:, None] >= 0, torch.nan)
        return self.patched(values)


class Run(opened.Run):
    """A run whose heads can be measured: see the module."""

    @cached_property
    def heads(self) -> RunHeads:
        return RunHeads(self)

    def translate(self, source: str) -> str:
        """The translation of a line, by the run's search."""
        if not isinstance(source, str):
            raise InputError(f"{source}: give one line of text; run.translator.translate takes a list")
        return self.translator.translate([source])[0]

    def loss(self, sources: Texts, targets: Texts, off: Sequence[Sequence[Head | str]] | None = None) -> xr.DataArray:
        """Negative log-likelihood of each target in nats, [sentence]; with `off`, lists of heads that are switched off
        together, [setting, sentence]. The coordinate `tokens` counts the target's tokens with its end."""
        wanted = [[]] if off is None else off
        gates = torch.stack([self.heads.gates(), *map(self.heads.gates_off, wanted)])[1:]
        encoded = self._encoded(sources, targets)
        if self.heads.positional and any(len(set(side.lengths.tolist())) > 1 for side in encoded):
            raise InputError("a patch is of the tokens of one pair: give pairs of as many tokens, or one at a time")
        found = token_log_probs(self.heads, *encoded, gates)
        settings = ["+".join(map(str, heads)) or "whole" for heads in wanted]
        coordinates = {"setting": settings, "tokens": ("sentence", found.lengths)}
        loss = xr.DataArray(-found.sums, coordinates, ("setting", "sentence"), "loss", {"units": "nats"})
        return loss[0].drop_vars("setting") if off is None else loss

    def cache(self, source: str, target: str) -> Cache:
        """All that the heads compute while the target is fed in."""
        return self._forced(source, target)[1]

    def attention(self, sources: Texts, targets: Texts, kind: str = "cross") -> xr.Dataset:
        """Patterns and value-weighted norms of all heads of a kind, [sentence, head, query, key], with their tokens;
        NaN beyond the end of a sentence. With `model.head_gate`, also gate [sentence, head, query], the mean over the
        dimensions of the output."""
        caches = [self.cache(*pair) for pair in zip(*_paired(sources, targets), strict=True)]
        heads = [head for head in self.heads.names if head.kind == kind]
        if not heads or not caches:
            raise InputError(f"attention of {kind}: no such heads, or no sentences; kinds are {', '.join(HOOKS)}")
        dims = ("sentence", "head", "query", "key")
        found = xr.Dataset(coords={"head": list(map(str, heads))})
        for name, dim in (("queries", "query"), ("keys", "key")):
            tokens = padded([np.array(getattr(cache[heads[0]], name)) for cache in caches])
            found.coords[name] = ("sentence", dim), tokens
        for name in ("pattern", "norm"):
            each = [torch.stack([getattr(cache[head], name) for head in heads]).cpu().numpy() for cache in caches]
            found[name] = dims, padded(each)
        found = found.where((found["queries"] != "") & (found["keys"] != "")).transpose(*dims)
        gates = [[cache[head].gate for head in heads] for cache in caches]
        if gates[0][0] is not None:
            each = [torch.stack(own).mean(dim=-1).cpu().numpy() for own in gates]  # type: ignore[arg-type]
            found["gate"] = xr.DataArray(padded(each), dims=dims[:3]).where(found["queries"] != "")
        return found

    @torch.no_grad()
    def logit_attribution(self, source: str, target: str) -> xr.DataArray:
        """Direct logit attribution: what each head of the decoder adds to the logit of each target token, less its mean
        over the vocabulary, [head, token]; the last norm keeps the scale that it has, the coordinate scale [token].
        Elhage et al. 2021, "A mathematical framework for Transformer circuits". Raises InputError for a model whose
        layers norm the sum, or that caps its logits: there, logits are no sum over heads."""
        model: Any = self.model
        norm = model.decoder_norm
        if not isinstance(norm, nn.LayerNorm) or model.output.cap is not None:
            raise InputError("direct logit attribution needs a run with model.norm=pre and without model.logit_cap")
        cache = self.cache(source, target)
        tokens, numbers = cache.predicted
        last = cache.residual[f"decoder{len(model.decoder)}"]
        scale = (last.var(dim=-1, unbiased=False, keepdim=True) + norm.eps).rsqrt()
        weight = model.output.weight
        direction = (weight[numbers] - weight.mean(dim=0)) * norm.weight * scale  # [token, d_model]
        direction = direction - direction.mean(dim=-1, keepdim=True)  # the norm takes the mean away
        heads = [head for head in self.heads.names if head.kind != "encoder"]
        rows = []
        for head in heads:
            module = self.heads.layers[head.place]
            output = module.output.weight.unflatten(1, (module.heads.count, -1))[:, head.head - 1]
            gate = 1 if module.head_gate is None else module.head_gate[head.head - 1]
            rows.append((gate * cache[head].z @ output.T * direction).sum(dim=-1).float())
        scales = ("token", scale[:, 0].float().cpu().numpy())
        coordinates = {"head": list(map(str, heads)), "token": tokens, "scale": scales}
        return xr.DataArray(torch.stack(rows).cpu().numpy(), coordinates, ("head", "token"), "logit")

    def align(self, source: str, other: str) -> NDArray[np.int64]:
        """The token of another sentence for each token of a source, its end counted; -1 for none: equal words, and
        changed words in the same place."""
        return places(*(self._words(text) for text in (source, other)))

    def run_with_cache(self, source: str, target: str) -> tuple[Tensor, dict[str, Tensor]]:
        """As TransformerLens': logits [1, target, vocab] and the cache by its names, see `Cache.by_hook`."""
        logits, cache = self._forced(source, target)
        return logits, cache.by_hook()

    def run_with_hooks(
        self, source: str, target: str, fwd_hooks: Sequence[tuple[str, Callable[[Tensor, str], Tensor | None]]] = ()
    ) -> Tensor:
        """As TransformerLens': logits [1, target, vocab] with functions (value, name) in the place of the outputs of
        heads, "decoder_blocks.1.cross_attn.hook_z" [1, position, head, d_head]."""
        layers = {f"{hook_name(layer)}.hook_z": layer for layer in self.heads.layers}
        with ExitStack() as hooks:
            for name, change in fwd_hooks:
                if name not in layers:
                    raise InputError(f"{name}: no hook of this model, which has {', '.join(layers)}")
                hooks.enter_context(self.heads.edited({layers[name]: partial(_hooked, name, change)}))
            return self._forced(source, target)[0]

    @torch.no_grad()
    def _forced(self, source: str, target: str) -> tuple[Tensor, Cache]:
        """Logits [1, target, vocab], and all that the heads compute, while the target is fed in."""
        if not isinstance(source, str) or not isinstance(target, str):
            raise InputError("give one source and one target, each a text")
        model: Any = self.model
        model.check_gates()
        batch = collate(*self._encoded(source, target), np.arange(1), 0).to(model.device)
        residual: dict[str, Tensor] = {}
        with recorded_attention(self.heads) as found, ExitStack() as hooks:
            for kind in ("encoder", "decoder"):
                for number, layer in enumerate(getattr(model, kind), start=1):
                    keep = partial(_keep, residual, f"{kind}{number}")
                    hooks.callback(layer.register_forward_hook(keep).remove)
            weights = AttentionWeights([], [], [])
            memory = model.encode(batch.source, batch.source_mask, weights)
            logits = model.output(model.decode(memory, batch.source_mask, batch.target_in, weights))
        sides = (self.tokenizer.source, batch.source[0]), (self.tokenizer.target, batch.target_out[0])
        sources, targets = ([side.vocabulary[number] for number in ids.tolist()[:-1]] + [END] for side, ids in sides)
        written = [BEGIN, *targets[:-1]]
        into = {"encoder": (sources, sources), "decoder": (written, written), "cross": (written, sources)}
        heads = {}
        for head in self.heads.names:
            own = {name: every[0, head.head - 1] for name, every in found[head.place].items()}
            heads[head] = HeadCache(**own, queries=into[head.kind][0], keys=into[head.kind][1])
        return logits, Cache(source, (targets, batch.target_out[0]), heads, residual)

    def _encoded(self, sources: Texts, targets: Texts) -> tuple[Sentences, Sentences]:
        own, other = _paired(sources, targets)
        return Sentences.of(self.translator.encode(own)), Sentences.of(self.tokenizer.target.encode(other))

    def _words(self, text: str) -> Tokens:
        side = self.tokenizer.source
        spelled = Spelled(side, Sentences.of(side.encode([text])), [text])
        return Tokens(spelled.words[0], spelled.owners(0))


def _keep(residual: dict[str, Tensor], name: str, _: Any, arguments: Any, output: Any) -> None:
    residual[name] = output[0][0]


def _hooked(name: str, change: Callable[[Tensor, str], Tensor | None], output: Tensor) -> Tensor:
    before = output.transpose(1, 2)
    after = change(before, name)
    if after is None:  # nothing is to change
        return output
    if not isinstance(after, Tensor) or after.shape != before.shape:
        raise InputError(f"{name}: the function must give a tensor {list(before.shape)}, as it gets one, or None")
    return after.transpose(1, 2)


def hook_name(layer: Layer) -> str:
    """TransformerLens' name of an attention; it counts layers from 0."""
    return HOOKS[layer.kind].format(layer.layer - 1)


def _paired(sources: Texts, targets: Texts) -> tuple[list[str], list[str]]:
    own, other = ([texts] if isinstance(texts, str) else list(texts) for texts in (sources, targets))
    if len(own) != len(other):
        raise InputError(f"{len(own)} sources and {len(other)} targets; give as many")
    return own, other


def open_run(directory: Any, **settings: Any) -> Run:
    """A finished run, with its heads: see `headcount.run.opened.open_run`."""
    return Run(**vars(opened.open_run(directory, **settings)))

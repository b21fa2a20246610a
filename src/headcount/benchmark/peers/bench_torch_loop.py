"""Plain torch: nn.Transformer, a training loop, and a beam search without a cache of keys and values."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from measure import BOS, EOS, PAD, Job, Meter, Result, decode_batches, endless, main, padded, read_pairs
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self, size: dict[str, Any], vocab_size: int) -> None:
        super().__init__()
        width, dropout = size["d_model"], size["dropout"]
        self.embedding = nn.Embedding(vocab_size, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.positions = nn.Parameter(torch.randn(512, width) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Transformer(
            width,
            size["num_heads"],
            size["encoder_layers"],
            size["decoder_layers"],
            size["d_feed_forward"],
            dropout,
            batch_first=True,
            norm_first=True,
        )

    def embed(self, tokens: Tensor) -> Tensor:
        scale = self.embedding.embedding_dim**0.5
        return self.dropout(self.embedding(tokens) * scale + self.positions[: tokens.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = additive(source == PAD)
        memory = self.layers.encoder(self.embed(source), src_key_padding_mask=padding)
        return self.project(self.decode(target, memory, padding))

    def decode(self, target: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        return self.layers.decoder(
            self.embed(target), memory, tgt_mask=causal, memory_key_padding_mask=padding, tgt_is_causal=True
        )

    def project(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.embedding.weight)


def additive(mask: Tensor) -> Tensor:
    """An additive mask, with which torch's attention is fastest: 0 where `mask` is False, minus infinity where True."""
    return torch.zeros(mask.shape, device=mask.device).masked_fill(mask, -math.inf)


def batches(job: Job) -> Iterator[tuple[Tensor, Tensor, Tensor, int]]:
    """Endless batches: sentences sorted by length, cut by the token budget, the batches shuffled every epoch.

    Yields source, decoder input, labels and the number of real tokens.
    """
    source, target = ([[*row, EOS] for row in side] for side in read_pairs(job))
    order = sorted(range(len(source)), key=lambda row: (len(target[row]), len(source[row])))
    cut: list[list[int]] = [[]]
    longest = 0
    for row in order:
        longest = max(longest, len(source[row]), len(target[row]))
        if cut[-1] and longest * (len(cut[-1]) + 1) > job["batch_tokens"]:
            cut.append([])
            longest = max(len(source[row]), len(target[row]))
        cut[-1].append(row)
    random = np.random.default_rng(1)
    while True:
        for index in random.permutation(len(cut)):
            rows = cut[index]
            sources = [source[row] for row in rows]
            labels = [target[row] for row in rows]
            tokens = sum(map(len, sources)) + sum(map(len, labels))
            shifted = [[BOS, *row[:-1]] for row in labels]
            source_in, target_in, target_out = (on_device(job, side) for side in (sources, shifted, labels))
            yield source_in, target_in, target_out, tokens


def on_device(job: Job, rows: list[list[int]]) -> Tensor:
    tensor = torch.from_numpy(padded(rows))
    return tensor if job["device"] == "cpu" else tensor.pin_memory().to(job["device"], non_blocking=True)


def autocast(job: Job) -> contextlib.AbstractContextManager:
    return torch.autocast(job["device"], torch.bfloat16, enabled=job["precision"] == "bf16")


def train(job: Job) -> Result:
    model = Model(job["model"], job["vocab_size"]).to(job["device"])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)

    def step(batch: tuple[Tensor, Tensor, Tensor, int]) -> int:
        source, target_in, target_out, tokens = batch
        with autocast(job):
            logits = model(source, target_in)
        loss = F.cross_entropy(
            logits.float().flatten(0, 1), target_out.flatten(), ignore_index=PAD, label_smoothing=job["smoothing"]
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), job["clip"])
        optimizer.step()
        return tokens

    return Meter(job).measure(batches(job), step)


@torch.inference_mode()
def decode(job: Job) -> Result:
    model = Model(job["model"], job["vocab_size"]).to(job["device"]).eval()

    def translate(rows: list[list[int]]) -> int:
        with autocast(job):
            search(model, on_device(job, [[*row, EOS] for row in rows]), job["beam"], job["new_tokens"])
        return len(rows)

    return Meter(job).measure(endless(decode_batches(job)), translate)


def search(model: Model, source: Tensor, beam: int, steps: int) -> Tensor:
    """The best translation of each row, `steps` tokens long."""
    sentences = len(source)
    padding = additive(source == PAD)
    memory = model.layers.encoder(model.embed(source), src_key_padding_mask=padding).repeat_interleave(beam, dim=0)
    padding = padding.repeat_interleave(beam, dim=0)
    tokens = torch.full((sentences * beam, 1), BOS, device=source.device)
    scores = torch.full((sentences, beam), -math.inf, device=source.device)
    scores[:, 0] = 0
    first = torch.arange(sentences, device=source.device)[:, None] * beam
    for _ in range(steps):
        log_probs = model.project(model.decode(tokens, memory, padding)[:, -1]).float().log_softmax(dim=-1)
        log_probs[:, EOS] = -math.inf
        candidates = (scores.flatten()[:, None] + log_probs).view(sentences, -1)
        scores, flat = candidates.topk(beam, dim=1)
        vocab = log_probs.shape[1]
        tokens = torch.cat([tokens[(first + flat // vocab).flatten()], (flat % vocab).view(-1, 1)], dim=1)
    return tokens.view(sentences, beam, -1)[:, 0, 1:]


if __name__ == "__main__":
    main({"train": train, "decode": decode}, ("torch",))

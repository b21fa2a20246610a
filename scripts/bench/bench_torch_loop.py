# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy>=2.0", "torch>=2.11"]
# ///
"""Plain torch: nn.Transformer in a training loop, with batches grouped by length and the fused AdamW."""

import math
import time
from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from measure import BOS, CLIP, PAD, RATE, SMOOTHING, Job, main, padded, read_pairs
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor, Tensor, int]  # source, decoder input, labels, number of real tokens


class Model(nn.Module):
    """An encoder-decoder with norms first, learned positions, and one matrix for source, target and output."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        width = job["d_model"]
        self.embedding = nn.Embedding(job["vocab_size"], width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.positions = nn.Parameter(torch.randn(512, width) * 0.02)
        self.dropout = nn.Dropout(job["dropout"])
        layers = job["encoder_layers"], job["decoder_layers"]
        self.layers = nn.Transformer(
            width, job["num_heads"], *layers, job["d_feed_forward"], job["dropout"], batch_first=True, norm_first=True
        )

    def embed(self, tokens: Tensor) -> Tensor:
        scale = self.embedding.embedding_dim**0.5
        return self.dropout(self.embedding(tokens) * scale + self.positions[: tokens.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        # Additive masks: with them torch's attention is fastest.
        padding = torch.zeros(source.shape, device=source.device).masked_fill(source == PAD, -math.inf)
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        memory = self.layers.encoder(self.embed(source), src_key_padding_mask=padding)
        hidden = self.layers.decoder(
            self.embed(target), memory, tgt_mask=causal, memory_key_padding_mask=padding, tgt_is_causal=True
        )
        return F.linear(hidden, self.embedding.weight)


def batches(job: Job) -> Iterator[Batch]:
    """Endless batches: sentences sorted by length, cut by the token budget, the batches shuffled every epoch."""
    source, target = read_pairs(job)
    cut: list[list[int]] = [[]]
    longest = 0
    for row in sorted(range(len(source)), key=lambda row: (len(target[row]), len(source[row]))):
        length = max(len(source[row]), len(target[row]))
        longest = max(longest, length)
        if cut[-1] and longest * (len(cut[-1]) + 1) > job["batch_tokens"]:
            cut.append([])
            longest = length
        cut[-1].append(row)
    random = np.random.default_rng(1)
    while True:
        for index in random.permutation(len(cut)):
            sources, labels = ([side[row] for row in cut[index]] for side in (source, target))
            tokens = sum(map(len, sources)) + sum(map(len, labels))
            shifted = [[BOS, *row[:-1]] for row in labels]
            yield on_device(job, sources), on_device(job, shifted), on_device(job, labels), tokens


def on_device(job: Job, rows: list[list[int]]) -> Tensor:
    tensor = torch.from_numpy(padded(rows))
    return tensor if job["device"] == "cpu" else tensor.pin_memory().to(job["device"], non_blocking=True)


def train(job: Job) -> float:
    model = Model(job).to(job["device"])
    optimizer = torch.optim.AdamW(model.parameters(), RATE, fused=True)

    tokens, begin = 0, time.perf_counter()
    for source, target, labels, count in islice(batches(job), job["steps"]):
        with torch.autocast(job["device"], torch.bfloat16, enabled=job["precision"] == "bfloat16"):
            logits = model(source, target)
        loss = F.cross_entropy(
            logits.float().flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        tokens += count
    if job["device"] == "cuda":
        torch.cuda.synchronize()
    return tokens / (time.perf_counter() - begin)


if __name__ == "__main__":
    main({"train": train})

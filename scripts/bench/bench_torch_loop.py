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
from measure import BOS, CLIP, PAD, RATE, SMOOTHING, Job, main, padded
from torch import Tensor, nn


class Model(nn.Module):
    """An encoder-decoder with norms first, learned positions, and one matrix for source, target and output."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        width, dropout = job["d_model"], job["dropout"]
        self.embedding = nn.Embedding(job["vocab_size"], width)
        self.positions = nn.Parameter(torch.randn(512, width))
        self.dropout = nn.Dropout(dropout)
        sizes = job["num_heads"], job["encoder_layers"], job["decoder_layers"], job["d_feed_forward"]
        self.layers = nn.Transformer(width, *sizes, dropout, batch_first=True, norm_first=True)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) + self.positions[: tokens.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        # Additive masks: with them torch's attention is fastest.
        padding = torch.zeros(source.shape, device=source.device).masked_fill(source == PAD, -math.inf)
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        memory = self.layers.encoder(self.embed(source), src_key_padding_mask=padding)
        masks = {"tgt_mask": causal, "memory_key_padding_mask": padding, "tgt_is_causal": True}
        return F.linear(self.layers.decoder(self.embed(target), memory, **masks), self.embedding.weight)


def batches(job: Job) -> Iterator[list[Tensor]]:
    """Endless batches of source, decoder input and labels: sentences sorted by length, cut by their target tokens, the
    batches shuffled every epoch."""
    pairs = sorted(zip(job["source"], job["target"], strict=True), key=lambda pair: (len(pair[1]), len(pair[0])))
    batch = np.cumsum([len(target) for _, target in pairs]) // job["batch_tokens"]
    ends = [*np.flatnonzero(np.diff(batch)) + 1, len(pairs)]
    random = np.random.default_rng(1)
    while True:
        for index in random.permutation(len(ends)):
            source, labels = zip(*pairs[ends[index - 1] if index else 0 : ends[index]], strict=True)
            sides = source, [[BOS, *row[:-1]] for row in labels], labels
            tensors = [torch.from_numpy(padded(side)) for side in sides]
            gpu = job["device"] == "cuda"
            yield [each.pin_memory().to("cuda", non_blocking=True) for each in tensors] if gpu else tensors


def train(job: Job) -> float:
    model = Model(job).to(job["device"])
    optimizer = torch.optim.AdamW(model.parameters(), RATE, fused=True)
    tokens, begin = torch.zeros((), device=job["device"], dtype=torch.long), time.perf_counter()
    for source, target, labels in islice(batches(job), job["steps"]):
        with torch.autocast(job["device"], torch.bfloat16, enabled=job["precision"] == "bfloat16"):
            logits = model(source, target).flatten(0, 1)
        loss = F.cross_entropy(logits.float(), labels.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        tokens += (source != PAD).sum() + (labels != PAD).sum()
    return int(tokens) / (time.perf_counter() - begin)  # int waits for a GPU


if __name__ == "__main__":
    main({"train": train})

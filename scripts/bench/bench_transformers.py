# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "accelerate>=1.15", "datasets>=4.0", "numpy>=2.0", "sentencepiece>=0.2", "torch>=2.11", "transformers>=5,<6",
# ]
# ///
"""Hugging Face transformers: a MarianMTModel trained by Seq2SeqTrainer; `generate` with an exported run."""

import tempfile
import time
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset
from measure import BOS, CLIP, PAD, RATE, SMOOTHING, Job, main, padded, read_pairs, translated

BATCH = 64  # sentences to translate


def config_of(job: Job) -> transformers.MarianConfig:
    return transformers.MarianConfig(
        vocab_size=job["vocab_size"],
        d_model=job["d_model"],
        encoder_layers=job["encoder_layers"],
        decoder_layers=job["decoder_layers"],
        encoder_ffn_dim=job["d_feed_forward"],
        decoder_ffn_dim=job["d_feed_forward"],
        encoder_attention_heads=job["num_heads"],
        decoder_attention_heads=job["num_heads"],
        dropout=job["dropout"],
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=512,
        pad_token_id=PAD,
        decoder_start_token_id=BOS,
    )


def collate(pairs: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    source = torch.from_numpy(padded([pair["input_ids"] for pair in pairs]))
    return {
        "input_ids": source,
        "attention_mask": (source != PAD).long(),
        "decoder_input_ids": torch.from_numpy(padded([[BOS, *pair["labels"][:-1]] for pair in pairs])),
        "labels": torch.from_numpy(padded([pair["labels"] for pair in pairs], -100)),
    }


class Trainer(transformers.Seq2SeqTrainer):
    """Counts the real tokens, and shuffles the batches: its own order begins with the longest sentences, and few steps
    would measure little else."""

    tokens = 0
    begin: float | None = None

    def _get_train_sampler(self, *arguments: Any) -> list[int]:
        rows = list(super()._get_train_sampler(*arguments))
        size = self.args.per_device_train_batch_size
        whole = np.array(rows[: len(rows) // size * size]).reshape(-1, size)
        return [*np.random.default_rng(1).permutation(whole).flatten().tolist(), *rows[whole.size :]]

    def training_step(self, model: Any, inputs: dict[str, torch.Tensor], *arguments: Any, **keywords: Any) -> Any:
        self.begin = self.begin or time.perf_counter()
        self.tokens += int(inputs["attention_mask"].sum() + (inputs["labels"] != -100).sum())
        return super().training_step(model, inputs, *arguments, **keywords)


def train(job: Job) -> float:
    source, target = read_pairs(job)
    lengths = [max(map(len, pair)) for pair in zip(source, target, strict=True)]
    model = transformers.MarianMTModel(config_of(job))
    data = Dataset.from_dict({"input_ids": source, "labels": target, "length": lengths})
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.Seq2SeqTrainingArguments(
            output_dir=folder,
            use_cpu=job["device"] == "cpu",
            bf16=job["precision"] == "bfloat16",
            # as many target tokens a batch as the others, on average
            per_device_train_batch_size=max(1, round(job["batch_tokens"] * len(target) / sum(map(len, target)))),
            train_sampling_strategy="group_by_length",
            label_smoothing_factor=SMOOTHING,
            optim="adamw_torch_fused",
            learning_rate=RATE,
            max_grad_norm=CLIP,
            max_steps=job["steps"],
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=job["device"] != "cpu",
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=collate)
        trainer.train()
        if job["device"] == "cuda":
            torch.cuda.synchronize()
        return trainer.tokens / (time.perf_counter() - (trainer.begin or 0.0))


@torch.inference_mode()
def translate(job: Job) -> float:
    tokenizer = transformers.AutoTokenizer.from_pretrained(job["folder"])
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(job["folder"], dtype=getattr(torch, job["precision"]))
    model.to(job["device"]).eval()

    def search(lines: list[str]) -> list[str]:
        order, texts = sorted(range(len(lines)), key=lambda row: -len(lines[row])), [""] * len(lines)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            # With the space, >>...<< at the beginning is text and no language code.
            batch = tokenizer([f" {lines[row]}" for row in rows], return_tensors="pt", padding=True)
            output = model.generate(**batch.to(job["device"]), num_beams=job["beam"], do_sample=False)
            for row, text in zip(rows, tokenizer.batch_decode(output, skip_special_tokens=True), strict=True):
                texts[row] = " ".join(text.split())
        return texts

    return translated(job, search)


if __name__ == "__main__":
    main({"train": train, "translate": translate})

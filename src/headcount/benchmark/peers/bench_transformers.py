"""Hugging Face transformers: a MarianMTModel of the same size, trained by Seq2SeqTrainer, searched by `generate`."""

import tempfile
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from measure import BOS, EOS, PAD, Job, Meter, Result, decode_batches, endless, main, padded, read_pairs
from transformers import MarianConfig, MarianMTModel, Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback
from transformers.utils import logging


def build_model(job: Job) -> MarianMTModel:
    size = job["model"]
    return MarianMTModel(
        MarianConfig(
            vocab_size=job["vocab_size"],
            d_model=size["d_model"],
            encoder_layers=size["encoder_layers"],
            decoder_layers=size["decoder_layers"],
            encoder_ffn_dim=size["d_feed_forward"],
            decoder_ffn_dim=size["d_feed_forward"],
            encoder_attention_heads=size["num_heads"],
            decoder_attention_heads=size["num_heads"],
            dropout=size["dropout"],
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=512,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
    )


def collate(pairs: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    source = torch.from_numpy(padded([pair["input_ids"] for pair in pairs]))
    return {
        "input_ids": source,
        "attention_mask": (source != PAD).long(),
        "decoder_input_ids": torch.from_numpy(padded([[BOS, *pair["labels"][:-1]] for pair in pairs])),
        "labels": torch.from_numpy(padded([pair["labels"] for pair in pairs], -100)),
    }


class Trainer(Seq2SeqTrainer):
    """Counts the real tokens of each batch, and shuffles the batches: its own order begins with the longest sentences,
    and a short window would measure little else."""

    tokens = 0

    def _get_train_sampler(self, *arguments: Any) -> list[int]:
        rows = list(super()._get_train_sampler(*arguments))
        size = self.args.per_device_train_batch_size
        whole = np.array(rows[: len(rows) // size * size]).reshape(-1, size)
        return [*np.random.default_rng(1).permutation(whole).flatten().tolist(), *rows[whole.size :]]

    def training_step(self, model: Any, inputs: dict[str, torch.Tensor], *arguments: Any, **keywords: Any) -> Any:
        self.tokens = int(inputs["attention_mask"].sum() + (inputs["labels"] != -100).sum())
        return super().training_step(model, inputs, *arguments, **keywords)


class StepCounter(TrainerCallback):
    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.trainer: Trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.meter.step(self.trainer.tokens)
        control.should_training_stop = self.meter.done


def train(job: Job) -> Result:
    source, target = ([[*row, EOS] for row in side] for side in read_pairs(job))
    lengths = [max(len(a), len(b)) for a, b in zip(source, target, strict=True)]
    data = Dataset.from_dict({"input_ids": source, "labels": target, "length": lengths})
    meter = Meter(job)
    counter = StepCounter(meter)
    with tempfile.TemporaryDirectory() as folder:
        arguments = Seq2SeqTrainingArguments(
            output_dir=folder,
            use_cpu=job["device"] == "cpu",
            bf16=job["precision"] == "bf16",
            per_device_train_batch_size=max(1, round(job["batch_tokens"] / job["mean_target"])),
            train_sampling_strategy="group_by_length",
            label_smoothing_factor=job["smoothing"],
            optim="adamw_torch_fused",
            learning_rate=1e-3,
            lr_scheduler_type="inverse_sqrt",
            warmup_steps=2000,
            max_grad_norm=job["clip"],
            max_steps=10**9,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=job["device"] != "cpu",
        )
        trainer = Trainer(
            model=build_model(job), args=arguments, train_dataset=data, data_collator=collate, callbacks=[counter]
        )
        counter.trainer = trainer
        trainer.train()
    return meter.result()


@torch.inference_mode()
def decode(job: Job) -> Result:
    model = build_model(job).to(job["device"]).eval()
    if job["precision"] == "bf16":
        model = model.to(torch.bfloat16)
    steps = job["new_tokens"]

    def translate(rows: list[list[int]]) -> int:
        source = torch.from_numpy(padded([[*row, EOS] for row in rows])).to(job["device"])
        out = model.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=job["beam"],
            do_sample=False,
            min_new_tokens=steps,
            max_new_tokens=steps,
        )
        if out.shape != (len(rows), steps + 1):
            raise SystemExit(f"translations of shape {tuple(out.shape)}, not of {steps} steps")
        return len(rows)

    return Meter(job).measure(endless(decode_batches(job)), translate)


if __name__ == "__main__":
    logging.set_verbosity_error()
    main({"train": train, "decode": decode}, ("transformers", "accelerate", "torch"))

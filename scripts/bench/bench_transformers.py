# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "accelerate>=1.15", "datasets>=4.0", "numpy>=2.0", "sentencepiece>=0.2", "torch>=2.11", "transformers>=5,<6",
# ]
# ///
"""Hugging Face transformers: a MarianMTModel trained by Seq2SeqTrainer; `generate` with an exported run."""

import tempfile
from typing import Any

import torch
import transformers
from datasets import Dataset
from measure import BOS, CLIP, PAD, RATE, SMOOTHING, Job, main, padded, translated


def config_of(job: Job) -> transformers.MarianConfig:
    same = {name: job[name] for name in ("vocab_size", "d_model", "encoder_layers", "decoder_layers", "dropout")}
    for side in ("encoder", "decoder"):
        same |= {f"{side}_ffn_dim": job["d_feed_forward"], f"{side}_attention_heads": job["num_heads"]}
    own = {"activation_function": "relu", "scale_embedding": True, "max_position_embeddings": 512}
    return transformers.MarianConfig(**same, **own, pad_token_id=PAD, decoder_start_token_id=BOS)


def collate(pairs: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    source = torch.from_numpy(padded([pair["input_ids"] for pair in pairs]))
    return {
        "input_ids": source,
        "attention_mask": (source != PAD).long(),
        "decoder_input_ids": torch.from_numpy(padded([[BOS, *pair["labels"][:-1]] for pair in pairs])),
        "labels": torch.from_numpy(padded([pair["labels"] for pair in pairs], -100)),
    }


def train(job: Job) -> float:
    source, target = job["source"], job["target"]
    lengths = [max(map(len, pair)) for pair in zip(source, target, strict=True)]
    data = Dataset.from_dict({"input_ids": source, "labels": target, "length": lengths})
    size = round(job["batch_tokens"] * len(target) / sum(map(len, target)))  # as many target tokens as the others
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.Seq2SeqTrainingArguments(
            output_dir=folder,
            use_cpu=job["device"] == "cpu",
            bf16=job["precision"] == "bfloat16",
            per_device_train_batch_size=max(1, size),
            train_sampling_strategy="group_by_length",
            label_smoothing_factor=SMOOTHING,
            optim="adamw_torch_fused",
            learning_rate=RATE,
            max_grad_norm=CLIP,
            max_steps=job["steps"],
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        model = transformers.MarianMTModel(config_of(job))
        trainer = transformers.Seq2SeqTrainer(model=model, args=arguments, train_dataset=data, data_collator=collate)
        rate = trainer.train().metrics["train_samples_per_second"]
    return float(rate * (sum(map(len, source)) + sum(map(len, target))) / len(target))


@torch.inference_mode()
def translate(job: Job) -> float:
    tokenizer = transformers.AutoTokenizer.from_pretrained(job["folder"])
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(job["folder"], dtype=getattr(torch, job["precision"]))
    model.to(job["device"]).eval()

    def search(lines: list[str]) -> list[str]:
        texts: dict[str, str] = {}
        order = sorted(lines, key=len)
        for start in range(0, len(order), 64):
            batch = order[start : start + 64]
            # With the space, >>...<< at the beginning is text and no language code.
            inputs = tokenizer([f" {line}" for line in batch], return_tensors="pt", padding=True).to(job["device"])
            output = model.generate(**inputs, num_beams=job["beam"], do_sample=False)
            texts |= zip(batch, tokenizer.batch_decode(output, skip_special_tokens=True), strict=True)
        return [" ".join(texts[line].split()) for line in lines]

    return translated(job, search)


if __name__ == "__main__":
    main({"train": train, "translate": translate})

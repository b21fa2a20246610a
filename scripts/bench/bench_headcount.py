"""headcount: its translator; and what the others train on, the token ids of a run and the size of its model."""

import json
from pathlib import Path

import numpy as np
from measure import Job, main, translated

import headcount


def translate(job: Job) -> float:
    translator = headcount.load(
        job["folder"], device=job["device"], precision=job["precision"], search={"beam": job["beam"]}
    )
    return translated(job, translator.translate)


def inputs(job: Job) -> float:
    """Write the training pairs and the model's size into two files; returns the number of pairs."""
    run = headcount.open_run(job["folder"], device="cpu")
    pairs = run.data().data["train"]
    arrays: dict[str, np.ndarray] = {}
    for side in ("source", "target"):
        rows = pairs[f"{side}_ids"][:]
        arrays[f"{side}_ids"] = np.concatenate([np.asarray(row, dtype=np.int32) for row in rows])
        arrays[f"{side}_ends"] = np.cumsum([len(row) for row in rows])
    np.savez(job["pairs"], allow_pickle=False, **arrays)
    names = ("d_model", "d_feed_forward", "encoder_layers", "decoder_layers", "num_heads", "dropout")
    size = {name: run.config.model[name] for name in names}
    size |= {"vocab_size": run.tokenizer.target.vocab_size, "batch_tokens": run.config.data.batch_tokens}
    Path(job["size"]).write_text(json.dumps(size), encoding="utf-8")
    return len(pairs)


if __name__ == "__main__":
    main({"translate": translate, "inputs": inputs})

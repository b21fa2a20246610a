"""headcount: its translator; and what the others train on, the token ids of a run and the size of its model."""

import json
from pathlib import Path

from measure import Job, main, translated

import headcount
from headcount.data.tokenizer import EOS


def translate(job: Job) -> float:
    settings = {"device": job["device"], "precision": job["precision"], "search": {"beam": job["beam"]}}
    return translated(job, headcount.load(job["folder"], **settings).translate)


def inputs(job: Job) -> float:
    """Write the model's size and the training pairs into the file `inputs`; returns the number of pairs."""
    run = headcount.open_run(job["folder"], device="cpu")
    names = ("d_model", "d_feed_forward", "encoder_layers", "decoder_layers", "num_heads", "dropout")
    found = {name: run.config.model[name] for name in names}
    found |= {"vocab_size": run.tokenizer.target.vocab_size, "batch_tokens": run.config.data.batch_tokens}
    train = run.data().data["train"]
    for side in ("source", "target"):
        found[side] = [[*ids, EOS] for ids in getattr(run.tokenizer, side).encode(list(train[side]))]
    Path(job["inputs"]).write_text(json.dumps(found), encoding="utf-8")
    return len(found["source"])


if __name__ == "__main__":
    main({"translate": translate, "inputs": inputs})

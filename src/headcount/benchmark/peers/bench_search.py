"""Beam search of a trained run: its test sentences, translated by headcount or by CTranslate2 until each one ends."""

from pathlib import Path
from typing import Any

from measure import Job, Meter, Result, endless, main

from headcount.evaluation.metrics import PRIMARY, score
from headcount.machine import use_faster_products, use_memory_again
from headcount.run.opened import Run, open_run


def opened(job: Job) -> Run:
    """The run, translating as the job says."""
    exact = {"beam": job["beam"], "shortlist": None, "horizon": None}
    settings: dict[str, Any] = exact | job["search"]
    if job["engine"] == "headcount":
        return open_run(job["run"], device="cpu", search=settings, precision=job["precision"])
    from headcount.export.engine import with_ctranslate2

    return with_ctranslate2(open_run(job["run"], device="cpu", search=settings), job["precision"])


def search(job: Job) -> Result:
    """Sentences a second, and BLEU of the translations."""
    use_memory_again()
    use_faster_products()
    run = opened(job)
    sources, references = (
        Path(job["run"], f"test.{side}.{language}").read_text(encoding="utf-8").splitlines()
        for side, language in zip(("src", "ref"), run.languages, strict=True)
    )
    bleu = score(run.translator.translate(sources), references, run.bleu_tokenizer)[PRIMARY].value
    measured = Meter(job).measure(endless([sources]), lambda lines: len(run.translator.translate(lines)))
    return measured | {"bleu": bleu}


if __name__ == "__main__":
    main({"search": search}, ("headcount", "torch", "ctranslate2"))

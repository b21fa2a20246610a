# /// script
# requires-python = ">=3.11"
# dependencies = ["ctranslate2>=4.8,<5", "numpy>=2.0", "sentencepiece>=0.2", "setuptools<81"]
# ///
"""CTranslate2, an inference engine in C++: translates with an exported run. It does not train."""

from pathlib import Path

import ctranslate2
import sentencepiece
from measure import Job, main, translated


def translate(job: Job) -> float:
    threads = {"inter_threads": job["threads"], "intra_threads": 1}  # a worker for each, with its batch, is fastest
    engine = ctranslate2.Translator(job["folder"], device=job["device"], compute_type=job["precision"], **threads)
    tokenizers = sorted(Path(job["folder"]).glob("*.model"))  # one, or that of the source before that of the target
    source, target = (sentencepiece.SentencePieceProcessor(str(tokenizers[index])) for index in (0, -1))
    settings = {"beam_size": job["beam"], "max_batch_size": 8192, "batch_type": "tokens", "min_decoding_length": 0}

    def search(lines: list[str]) -> list[str]:
        results = engine.translate_batch(source.encode(lines, out_type=str), **settings)
        return [" ".join(target.decode(result.hypotheses[0]).split()) for result in results]

    return translated(job, search)


if __name__ == "__main__":
    main({"translate": translate})

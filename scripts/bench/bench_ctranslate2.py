# /// script
# requires-python = ">=3.11"
# dependencies = ["ctranslate2>=4.8,<5", "numpy>=2.0", "sentencepiece>=0.2", "setuptools<81"]
# ///
"""CTranslate2, an inference engine in C++: translates with an exported run. It does not train."""

from pathlib import Path

import ctranslate2
import sentencepiece
from measure import Job, main, translated

BATCH_TOKENS = 8192  # as search.batch_tokens


def translate(job: Job) -> float:
    folder = Path(job["folder"])
    translator = ctranslate2.Translator(
        str(folder),
        device=job["device"],
        compute_type=job["precision"],
        inter_threads=job["threads"],  # a worker for each thread, with a batch of its own, is fastest
        intra_threads=1,
    )
    tokenizers = sorted(folder.glob("*.model"))  # one, or that of the source before that of the target
    source, target = (sentencepiece.SentencePieceProcessor(str(tokenizers[index])) for index in (0, -1))

    def search(lines: list[str]) -> list[str]:
        results = translator.translate_batch(
            source.encode(lines, out_type=str),
            beam_size=job["beam"],
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            min_decoding_length=0,
        )
        return [" ".join(target.decode(result.hypotheses[0]).split()) for result in results]

    return translated(job, search)


if __name__ == "__main__":
    main({"translate": translate})

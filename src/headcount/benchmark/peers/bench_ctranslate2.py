"""CTranslate2, an inference engine in C++: the anchor for translating. It does not train.

Its model has the same shape with random weights, saved in its own format.
"""

import tempfile
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec
from measure import Job, Meter, Result, decode_batches, endless, main, several

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]


def build_spec(job: Job) -> transformer_spec.TransformerSpec:
    size, vocab_size = job["model"], job["vocab_size"]
    width, hidden = size["d_model"], size["d_feed_forward"]
    random = np.random.default_rng(1)

    def linear(layer: common_spec.LinearSpec, rows: int, columns: int) -> None:
        layer.weight = random.normal(0, columns**-0.5, (rows, columns)).astype(np.float32)
        layer.bias = np.zeros(rows, np.float32)

    def norm(layer: common_spec.LayerNormSpec) -> None:
        layer.gamma, layer.beta = np.ones(width, np.float32), np.zeros(width, np.float32)

    def feed_forward(layer: transformer_spec.FeedForwardSpec) -> None:
        norm(layer.layer_norm)
        linear(layer.linear_0, hidden, width)
        linear(layer.linear_1, width, hidden)

    def self_attention(layer: Any) -> None:
        norm(layer.layer_norm)
        linear(layer.linear[0], 3 * width, width)
        linear(layer.linear[1], width, width)

    spec = transformer_spec.TransformerSpec.from_config(
        (size["encoder_layers"], size["decoder_layers"]), size["num_heads"], pre_norm=True
    )
    embedding = random.normal(0, width**-0.5, (vocab_size, width)).astype(np.float32)
    positions = random.normal(0, 0.02, (512, width)).astype(np.float32)
    for side, table in ((spec.encoder, spec.encoder.embeddings[0]), (spec.decoder, spec.decoder.embeddings)):
        table.weight = embedding
        side.position_encodings.encodings = positions
        side.scale_embeddings = True
        norm(side.layer_norm)
        for layer in side.layer:
            self_attention(layer.self_attention)
            feed_forward(layer.ffn)
    for layer in spec.decoder.layer:
        norm(layer.attention.layer_norm)
        linear(layer.attention.linear[0], width, width)
        linear(layer.attention.linear[1], 2 * width, width)
        linear(layer.attention.linear[2], width, width)
    spec.decoder.projection.weight = embedding
    words = SPECIAL + [f"p{number}" for number in range(len(SPECIAL), vocab_size)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.add_source_eos = True
    spec.validate()
    return spec


def decode(job: Job) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        build_spec(job).save(folder)
        translator = ctranslate2.Translator(
            folder, device="cpu", compute_type=job["precision"], inter_threads=job["threads"], intra_threads=1
        )
    steps = job["new_tokens"]
    # Several batches at once: it is fastest with one worker per thread, each with its own batch.
    parts = [[[f"p{number}" for number in row] for row in part] for part in several(decode_batches(job))]

    def translate(rows: list[list[str]]) -> int:
        out = translator.translate_batch(
            rows,
            beam_size=job["beam"],
            max_batch_size=job["decode_batch"],
            min_decoding_length=steps,
            max_decoding_length=steps,
        )
        if any(len(each.hypotheses[0]) != steps for each in out):
            raise SystemExit(f"translations of {sorted({len(each.hypotheses[0]) for each in out})} tokens, not {steps}")
        return len(rows)

    return Meter(job).measure(endless(parts), translate)


if __name__ == "__main__":
    main({"decode": decode}, ("ctranslate2",))

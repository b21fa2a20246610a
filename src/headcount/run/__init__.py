"""Runs: from config to objects, training, and the directory of a run.

A run directory holds everything that a later command needs:

    config.yaml                resolved
    tokenizer.model            sentencepiece
    model.safetensors          the weights to use: the average, or the last weights where these do better
    checkpoints/last.ckpt      the full training state, for resume; last-1.ckpt is the one before it
    metrics.json               scores with their signatures, counts, versions
    test.hyp.<lang>, test.ref.<lang>    plain text, for `sacrebleu`
    logs/, train.log           curves, and the log of training
"""

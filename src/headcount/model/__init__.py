"""Attention and the Transformer: tensors in, tensors out. Nothing here knows of tokenizers, batches or configs."""

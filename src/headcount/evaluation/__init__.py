"""Evaluation: sacrebleu scores, their significance, likelihood, and contrastive accuracy."""

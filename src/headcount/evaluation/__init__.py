"""How good translations are: sacrebleu scores, their significance, and contrastive accuracy."""

"""Heads: what each attention head does, and what it is worth.

translator = headcount.load("runs/latest")
heads = Heads(translator.model)
with heads.gated({"cross2.1": 0}):
    translator.translate(["The old doctor sleeps in the garden."])
"""

from headcount.heads.interface import Head, Heads

__all__ = ["Head", "Heads"]

"""Runs: from config to objects, training, and the directory of a run (its files: docs/development.md)."""

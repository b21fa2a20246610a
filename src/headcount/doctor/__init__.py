"""Doctor: causes of a low score, found in a corpus and in a run."""

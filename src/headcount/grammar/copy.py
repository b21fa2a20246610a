"""Copy task: the English of the built-in corpus, each sentence its own translation."""

from datasets import Dataset, DatasetDict

from headcount.grammar.corpus import Grammar


class Copy(Grammar):
    """The English sentences of `Grammar` as sources and targets. `load` gives the columns `source` and `target`."""

    target_language = "en"

    def fingerprint(self) -> str:
        return f"copy-{super().fingerprint()}"

    def load(self) -> DatasetDict:
        """The splits as tables. Raises InputError where train is too small for the others."""
        texts = {split: [pair.sentence.source for pair in pairs] for split, pairs in self.generate().items()}
        return DatasetDict({name: Dataset.from_dict({"source": text, "target": text}) for name, text in texts.items()})

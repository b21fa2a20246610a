"""Words of one sentence in one language, with the meanings that they carry."""


class Writer:
    """Collects the words of a sentence in the order in which they are written.

    keys: of the meanings of each word. links, pairs: as of `Sentence`, collected in English only.
    """

    def __init__(self) -> None:
        self.words: list[str] = []
        self.keys: list[tuple[int, ...]] = []
        self.links: list[tuple[str, int, int]] = []
        self.pairs: list[tuple[str, str, str]] = []

    def add(self, text: str, *keys: int) -> None:
        """Append the words of `text`, all with `keys`; a comma or a full stop replaces a comma before it."""
        if text in {",", "."} and self.words and self.words[-1] == ",":
            self.words.pop()
            self.keys.pop()
        for word in text.split(" ") if " " in text else (text,):
            self.words.append(word)
            self.keys.append(keys)

    def text(self) -> str:
        """The sentence: a capital first letter, no blank before a punctuation mark."""
        joined = " ".join(self.words)
        for mark in ",;.":
            joined = joined.replace(" " + mark, mark)
        return joined[0].upper() + joined[1:]

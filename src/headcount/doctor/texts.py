"""Text as the doctor compares it: words, and sentences without case, punctuation and spaces."""

import re

import regex

# A word, or a single character of a script that has no spaces between words.
WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
SPACELESS = re.compile(f"[{WIDE}]")
# Vowel signs and other marks belong to their letters, which `re` does not know.
WORD = regex.compile(rf"[{WIDE}]|(?:(?![{WIDE}])[\p{{L}}\p{{M}}])+")
NOT_LETTERS = regex.compile(r"[^\p{L}\p{M}\p{N}]+")
# UTF-8 that was read as Latin-1 or Windows-1252 ("Ã¤", "â€™", "Ð¿"); replaced and control characters; HTML entities.
SECOND_BYTES = "\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
BROKEN = re.compile(rf"[ÂÃÐÑ][{SECOND_BYTES}]|â€|\ufffd|&(?:[a-z]{{2,8}}|#\d{{1,6}});|[\x00-\x08\x0e-\x1b\x7f-\x9f]")
TOKENISED = re.compile(r"\S [.,](?: |$)|@@ |@-@|&apos;|&quot;")


def folded(text: str) -> str:
    """A text without case, punctuation and spaces.

    >>> folded("Don't - stop!"), folded("हिन्दी") == folded("हन्द")
    ('dontstop', False)
    """
    return NOT_LETTERS.sub("", text.casefold())


def words(text: str) -> list[str]:
    """The words of a text in lower case, without numbers.

    >>> words("Two dogs, 3 cats: 小狗 हिन्दी")
    ['two', 'dogs', 'cats', '小', '狗', 'हिन्दी']
    """
    return WORD.findall(text.lower())


def width(text: str) -> int:
    """Characters of a text; those of a script without spaces count twice.

    >>> width("cats 小狗")
    9
    """
    return len(text) if text.isascii() else len(text) + len(SPACELESS.findall(text))


def loops(text: str, most: int = 4, times: int = 3) -> bool:
    """Whether a phrase of up to `most` words comes `times` times in a row.

    >>> loops("the man and the man and the man and sleeps"), loops("the man and the dog")
    (True, False)
    """
    found = text.split()
    return any(
        all(found[i : i + size] == found[i + k * size : i + (k + 1) * size] for k in range(1, times))
        for size in range(1, most + 1)
        for i in range(len(found) - times * size + 1)
    )

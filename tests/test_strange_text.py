"""Text of real people: without spaces, or with nothing that can be seen."""

import unicodedata

from headcount.data.tokenizer import normalise
from headcount.evaluation import metrics

INVISIBLE = ["\u200b", "\u200e\u200f", "\u00ad", "\ufeff", "\u2060 \u200b", "\ufe0f", "\u3164", "\x1c\u200b"]
SEEN = ["a\u200db", "नमस्\u200dते", "می\u200cخواهم", "👩\u200d💻\ufe0f", "\u200ba", "co\u00adop"]


def test_text_that_cannot_be_seen_is_empty_and_within_a_line_it_stays():
    assert [normalise(text) for text in INVISIBLE] == [""] * len(INVISIBLE)
    assert [normalise(text) for text in SEEN] == [unicodedata.normalize("NFC", text) for text in SEEN]


REFERENCES = {  # text, and whether BLEU by 13a takes its sentences for words
    "Chinese": ("老医生在花园里睡觉。|女孩读一本书。|没有可用的文件", True),
    "Chinese with spaces": ("老 医生 在 花园 里 睡觉 。|女孩 读 一 本 书 。|没有 可用 的 文件", False),
    "Thai": ("ฉันรักเธอมาก|แมวกินปลาในบ้านใหญ่ แม่อ่านหนังสือ", True),
    "German": ("Donaudampfschifffahrtsgesellschaft, sagte der Rechtsanwalt.|Rindfleischverordnung", False),
}


def test_the_text_says_whether_bleu_finds_words():
    for name, (text, without_spaces) in REFERENCES.items():
        assert metrics.counts_sentences("13a", text.split("|")) is without_spaces, name
        assert not metrics.counts_sentences("char", text.split("|"))

"""Where parallel text comes from: the Hugging Face hub, a folder, or files of your own.

Every corpus gives the same thing: the splits train, valid and test, and further test sets if there are any, each to be
gone through some rows at a time, with the text columns `source` and `target`. Nothing is cleaned here.
"""

from headcount.data.corpora.corpus import RESERVED, SPLITS, Corpus, Pairs, further_names, language_codes, one_line
from headcount.data.corpora.files import FilesCorpus
from headcount.data.corpora.hub import HubCorpus
from headcount.data.corpora.text import read_chunks, read_lines, read_parallel, stream_parallel

__all__ = [
    "RESERVED",
    "SPLITS",
    "Corpus",
    "FilesCorpus",
    "HubCorpus",
    "Pairs",
    "further_names",
    "language_codes",
    "one_line",
    "read_chunks",
    "read_lines",
    "read_parallel",
    "stream_parallel",
]

"""Corpora: parallel text of the Hugging Face hub, of a folder or of local files.

A corpus gives the splits train, valid and test, and further test sets, as text in the columns `source` and `target`,
read in chunks of rows. Nothing is cleaned here.
"""

from headcount.data.corpora.corpus import SPLITS, Corpus, Pairs, further_names, language_codes, one_line
from headcount.data.corpora.files import FilesCorpus
from headcount.data.corpora.held_out import HeldOut
from headcount.data.corpora.hub import HubCorpus
from headcount.data.corpora.text import read_parallel

__all__ = [
    "SPLITS",
    "Corpus",
    "FilesCorpus",
    "HeldOut",
    "HubCorpus",
    "Pairs",
    "further_names",
    "language_codes",
    "one_line",
    "read_parallel",
]

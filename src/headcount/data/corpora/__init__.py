"""Corpora: parallel text of the Hugging Face hub, of a folder or of local files.

A corpus gives the splits train, valid and test, and further test sets, as text in the columns `source` and `target`.
Nothing is cleaned here.
"""

from headcount.data.corpora.files import FilesCorpus as FilesCorpus
from headcount.data.corpora.hub import HubCorpus as HubCorpus

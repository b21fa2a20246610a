"""Citation: the BibTeX entry of headcount."""

import headcount
from headcount.report.blocks import Code, Section
from headcount.report.study import Study

ENTRY = """@software{{headcount,
  title = {{headcount: what every attention head of a translation Transformer is worth}},
  author = {{{{The headcount authors}}}},
  version = {{{version}}},
}}"""


def section(study: Study) -> Section:
    tables = " Cite the papers of published figures beside it." if study.sweep.design.published else ""
    about = f"CITATION.cff of headcount as BibTeX; versions and settings of the runs stand above.{tables}"
    return Section("How to cite", (about, Code(ENTRY.format(version=headcount.__version__), "bibtex")))

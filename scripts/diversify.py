"""Write a corpus of a training text and its translations by several runs; `--help` lists the settings."""

from headcount.run.console import run_script
from headcount.run.diversify import diversify

if __name__ == "__main__":
    run_script("diversify", diversify)

"""Translate standard input, a sentence a line; prompts in a terminal."""

from headcount.run.console import run_script
from headcount.run.translate import translate

if __name__ == "__main__":
    run_script("translate", translate)

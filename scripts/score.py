"""Score given translations; `--help` lists the settings."""

from headcount.run.console import run_script
from headcount.run.score import score

if __name__ == "__main__":
    run_script("score", score)

"""Score a run, or several side by side; `--help` lists the settings."""

from headcount.run.console import run_script
from headcount.run.evaluate import evaluate

if __name__ == "__main__":
    run_script("evaluate", evaluate)

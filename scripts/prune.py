"""Write a smaller run without some attention heads of a run; `--help` lists the settings."""

from headcount.heads.prune_run import prune
from headcount.run.console import run_script

if __name__ == "__main__":
    run_script("prune", prune)

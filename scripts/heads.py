"""Measure what each attention head of a run does and what it is worth; `--help` lists the settings."""

from headcount.commands.heads import main

if __name__ == "__main__":
    main()

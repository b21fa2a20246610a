"""Measure the speed of headcount and of others at the same work; `--help` lists the settings."""

from headcount.commands.bench import main

if __name__ == "__main__":
    main()

"""Simulate studies and analyse them; `--help` lists the settings."""

from headcount.commands.power import main

if __name__ == "__main__":
    main()

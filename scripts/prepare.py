"""Prepare a corpus before it is trained on; `--help` lists the settings."""

from headcount.commands.prepare import main

if __name__ == "__main__":
    main()

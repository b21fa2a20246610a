"""Translate standard input; `--help` lists the settings."""

from headcount.commands.translate import main

if __name__ == "__main__":
    main()

"""Write a corpus of a training text and its translations by several runs; `--help` lists the settings."""

from headcount.commands.diversify import main

if __name__ == "__main__":
    main()

"""Score given translations; `--help` lists the settings."""

from headcount.commands.score import main

if __name__ == "__main__":
    main()

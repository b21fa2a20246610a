"""Train a translation model; `--help` lists the settings."""

from headcount.commands.train import main

if __name__ == "__main__":
    main()

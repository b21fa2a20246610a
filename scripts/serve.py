"""Serve the translations of a run over HTTP; `--help` lists the settings."""

from headcount.commands.serve import main

if __name__ == "__main__":
    main()

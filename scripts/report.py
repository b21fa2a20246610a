"""Report on a sweep; `--help` lists the settings."""

from headcount.commands.report import main

if __name__ == "__main__":
    main()

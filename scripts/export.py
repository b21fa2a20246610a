"""Export a run to another inference engine; `--help` lists the settings."""

from headcount.commands.export import main

if __name__ == "__main__":
    main()

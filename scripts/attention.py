"""Draw the attention maps of a run; `--help` lists the settings."""

from headcount.commands.attention import main

if __name__ == "__main__":
    main()

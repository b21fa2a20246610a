"""Score a run, or several side by side; `--help` lists the settings."""

from headcount.commands.evaluate import main

if __name__ == "__main__":
    main()

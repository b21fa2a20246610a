"""Write a smaller run without some attention heads of a run; `--help` lists the settings."""

from headcount.commands.prune import main

if __name__ == "__main__":
    main()

"""Write a page that runs the model of a run; `--help` lists the settings."""

from headcount.commands.explore import main

if __name__ == "__main__":
    main()

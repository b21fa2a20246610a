"""Look for causes of a low score; `--help` lists the settings."""

from headcount.commands.doctor import main

if __name__ == "__main__":
    main()

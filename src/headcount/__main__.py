"""`python -m headcount` is the program `headcount`."""

from headcount.cli import main

if __name__ == "__main__":
    main()

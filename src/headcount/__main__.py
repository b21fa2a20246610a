"""`python -m headcount` is the program `headcount`."""

from headcount.cli import main

main()

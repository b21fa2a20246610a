"""Choose among the n best translations of a run by the scores of further runs; `--help` lists the settings."""

from headcount.commands.rerank import main

if __name__ == "__main__":
    main()

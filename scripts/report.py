"""`headcount report` as a script; `--help` lists the settings."""

from headcount.cli import run_command

if __name__ == "__main__":
    run_command("report")

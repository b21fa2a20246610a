"""The launcher of sweeps, where Hydra looks for plugins."""

from headcount.run.sweep import ProcessLauncher


class Processes(ProcessLauncher):
    """`hydra/launcher=processes`."""

"""The launcher of sweeps, where Hydra looks for plugins."""

from headcount.run.sweep import Processes

__all__ = ["Processes"]

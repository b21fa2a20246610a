"""What this process may use of the machine."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def cores() -> int:
    """Processor cores that this process may use, at least 1: those it may run on, and no more than the CPU quota of its
    control group (such as a container's), rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def cpu_quota(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> float | None:
    """Cores' worth of processor time that this process and its siblings get; None without a limit.

    It is the least quota of its control group and of all above, in version 2 (`cpu.max`) or 1 (`cpu.cfs_quota_us`).
    """
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    quotas = (_quota(folder) for line in lines for folder in _folders(cgroups, line))
    return min((quota for quota in quotas if quota is not None), default=None)


def _folders(cgroups: Path, line: str) -> Iterator[Path]:
    """The control group in a line of /proc/self/cgroup and all above it, where they set a processor quota."""
    _, controllers, path = line.split(":", 2)
    if controllers and "cpu" not in controllers.split(","):
        return
    root = cgroups / "cpu" if controllers else cgroups
    group = Path(path.lstrip("/"))
    yield from (root / folder for folder in (group, *group.parents))


def _quota(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # no such files, or "max"
        return None

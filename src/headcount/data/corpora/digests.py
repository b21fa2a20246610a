"""SHA-256 digests of files; those of large files are cached until the file changes."""

import hashlib
import json
import os
import time
from pathlib import Path

from headcount.files import require_regular, write_text

LARGE = 2**24  # bytes from which a digest is cached; a smaller file is read in hundredths of a second
SETTLED = 2.0  # seconds after which a change shows in a file's times, however coarse the file system's clock


def file_digest(path: Path) -> bytes:
    """SHA-256 of a file's content. Raises OSError for a file that cannot be read, a pipe and a device among them."""
    require_regular(path)
    state = _state(path)
    if state[0] < LARGE:
        return _computed(path)
    try:
        kept = _cache() / hashlib.sha256(str(path.resolve()).encode()).hexdigest()
    except RuntimeError:  # a user without a home directory, as in some containers
        return _computed(path)
    try:
        known = json.loads(kept.read_text(encoding="utf-8"))
        if known["state"] == state:
            return bytes.fromhex(known["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    digest = _computed(path)
    # A file that was written just now may change again without a change of its times.
    if time.time_ns() - max(state[1:3]) > SETTLED * 1e9 and _state(path) == state:
        _keep(kept, {"path": str(path.resolve()), "state": state, "sha256": digest.hex()})
    return digest


def _state(path: Path) -> list[int]:
    """The file's size, its times of modification and of status change (ns), and its inode."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _computed(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _keep(kept: Path, entry: dict[str, object]) -> None:
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_text(kept, json.dumps(entry) + "\n")
    except OSError:
        pass  # no cache: the digest is computed again next time


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headcount" / "digests"

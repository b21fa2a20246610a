"""Atomic file writes: a reader finds the old file or the new one, never half of one."""

import contextlib
import errno
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout
from rich.filesize import decimal

logger = logging.getLogger(__name__)

STANDARD_OUTPUT = "standard output"  # its name in errors
FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of a full disk, and of one whose quota is used up


@contextlib.contextmanager
def naming(name: str | Path, size: int | None = None, beside: Path | None = None) -> Iterator[None]:
    """Let an OSError of the block say which file it is of, where it names none or `beside`; on a full disk it gets a
    note of the `size` in bytes that is needed."""
    try:
        yield
    except OSError as error:
        if error.filename in (None, str(beside)):
            error.filename = str(name)
        if size is not None and error.errno in FULL and not hasattr(error, "__notes__"):
            error.add_note(f"{decimal(size)} are needed")
        raise


@contextlib.contextmanager
def replacing(path: Path, before: Path | None = None, size: int | None = None) -> Iterator[Path]:
    """The path of a new file beside `path` to write; when the block ends it takes the place of `path`, flushed to disk.

    Its name is new, so two writers never share it and no link is followed. After an exception it is removed and `path`
    is as it was. Raises OSError; on a full disk with a note of the `size` in bytes.

    before: a name for the file that was at `path`, which keeps its own until the new one is on the disk.
    """
    require_regular(path)  # a rename would take the place of a device for all programs
    beside = _beside(path)
    with naming(path, size, beside):
        try:
            yield beside
            _to_disk(beside)
            if before is not None and path.exists():
                path.replace(before)
            beside.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):  # of a directory that is gone, or can only be read by now
                beside.unlink()
            raise
    _to_disk(path.parent)


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A new directory to fill, which gets the name `path` when the block ends; after an exception it is removed.

    Raises OSError, FileExistsError among them where `path` is taken.
    """
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "exists already", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = _beside(path)
    beside.mkdir()
    try:
        yield beside
        beside.rename(path)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    _to_disk(path.parent)


def point(link: Path, target: str) -> None:
    """Make `link` a symbolic link to `target`, in place of the link that it was. Raises OSError."""
    beside = _beside(link)
    beside.symlink_to(target)
    beside.replace(link)


def remove_parts(directory: Path) -> None:
    """Remove the files that `replacing` began in a directory, and below it, in processes that were killed. No other
    process may be writing there. Raises OSError."""
    for path in list(directory.rglob(".*.part")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # of a folder that is removed


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file, see `replacing`."""
    with replacing(path, size=len(content)) as beside:
        beside.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a whole file in UTF-8, line ends as they are in `text`, see `replacing`."""
    write_bytes(path, text.encode())


def require_regular(path: Path) -> None:
    """Raises OSError for what is there and is no regular file: a pipe or a device may have no end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is no regular file", str(path))


def show(path: Path) -> str:
    """A path relative to the working directory, if it is inside it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def free_space(path: Path) -> int:
    """Free bytes of the file system of a path, or of the nearest folder above it that exists."""
    return shutil.disk_usage(next(each for each in (path, *path.absolute().parents) if each.exists())).free


def first_error(error: OSError) -> OSError:
    """The error that came first, where closing the files after it raised the same again."""
    before = None if error.__suppress_context__ else error.__context__
    return first_error(before) if isinstance(before, OSError) and before.errno == error.errno else error


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")


def _to_disk(path: Path) -> None:
    # A rename may reach the disk before the content does, and a power cut in between would leave an empty file.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def waiting(lock: FileLock, reason: str) -> AcquireReturnProxy:
    """A lock for a `with` block; it logs a line if it has to wait."""
    try:
        return lock.acquire(blocking=False)
    except Timeout:
        logger.info("%s; waiting until it has ended (%s)", reason, lock.lock_file)
        return lock.acquire()

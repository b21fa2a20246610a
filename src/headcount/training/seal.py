"""Checksum of a checkpoint: the SHA-256 of the file, kept in the comment of its zip archive.

A zip archive has a CRC of each member, but none of what is around them; this covers every byte.
"""

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
import torch

PREFIX = b"sha256:"
LENGTH = len(PREFIX) + 2 * hashlib.sha256().digest_size
END = b"PK\5\6"  # an archive ends with a record of 22 bytes, whose last two are the length of the comment after it
RECORD = 22
MOST_VALUES = 2**20  # tensors, numbers and groups of them in a checkpoint
NO_COMMENT, COMMENT = struct.pack("<H", 0), struct.pack("<H", LENGTH)


def seal(archive: Path) -> None:
    """Write the checksum of a zip archive into its comment. Raises BadZipFile where it is no archive without a comment,
    OSError."""
    if not _without_comment(archive):
        raise BadZipFile(f"{archive}: is not a zip archive without a comment")
    with archive.open("r+b") as file:
        file.seek(-len(COMMENT), 2)
        file.write(COMMENT)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256")  # it leaves the file at its end
        file.write(PREFIX + digest.hexdigest().encode())


def check_seal(archive: Path) -> None:
    """Compare a file with its checksum. Raises BadZipFile where its bytes are not those that were written, and OSError.
    An archive without a checksum, of an earlier version, is compared with the CRCs of its members."""
    if archive.stat().st_size >= LENGTH:
        content = np.memmap(archive, mode="r")
        comment = content[-LENGTH:].tobytes()
        if comment.startswith(PREFIX):
            if comment != PREFIX + hashlib.sha256(content[:-LENGTH].data).hexdigest().encode():
                raise BadZipFile("its bytes are not those of its checksum")
            return
    if not _without_comment(archive):
        raise BadZipFile("its end is cut off or changed")
    with ZipFile(archive) as members:
        if wrong := members.testzip():
            raise BadZipFile(f"bad checksum of {wrong}")


def read_checkpoint(archive: Path) -> Any:
    """The content of a checkpoint; tensors are mapped from the file, and nothing in it can run. Raises one of many
    errors for another file, BadZipFile for one that would be larger in memory than on disk."""
    with ZipFile(archive) as members:
        if any(each.compress_type != ZIP_STORED or each.file_size > each.compress_size for each in members.infolist()):
            raise BadZipFile("its members are compressed")
    try:
        content = torch.load(archive, map_location="cpu", weights_only=True, mmap=True)
    except UnpicklingError as error:
        raise BadZipFile("it holds other objects than tensors, numbers and text") from error
    _count(content, iter(range(MOST_VALUES)))
    return content


def _count(node: Any, left: Iterator[int]) -> None:
    """Raises BadZipFile where a value is used in more than `MOST_VALUES` places, as nested lists of one list are."""
    if next(left, None) is None:
        raise BadZipFile(f"it holds more than {MOST_VALUES:,} values")
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list | tuple | set) else ():
        _count(child, left)


def _without_comment(archive: Path) -> bool:
    with archive.open("rb") as file:
        file.seek(-min(RECORD, file.seek(0, 2)), 2)
        record = file.read()
    return record.startswith(END) and record.endswith(NO_COMMENT)

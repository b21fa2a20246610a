"""The checksum of a checkpoint covers every byte of the file."""

import random
from zipfile import BadZipFile, ZipFile

import pytest
import torch

from headcount.training.seal import LENGTH, check_seal, seal


@pytest.fixture
def sealed(tmp_path):
    path = tmp_path / "last.ckpt"
    torch.save({"global_step": 3, "weight": torch.randn(40, 40)}, path)
    seal(path)
    return path


def places(size: int) -> list[int]:
    """Places to damage: some anywhere, and all of the checksum and the record before it."""
    drawn = random.Random(1).sample(range(size), 100)
    return [*drawn, *range(size - LENGTH - 30, size)]


def test_a_sealed_checkpoint_is_read_as_before(sealed):
    check_seal(sealed)
    for mapped in (True, False):
        assert torch.load(sealed, weights_only=True, mmap=mapped)["weight"].shape == (40, 40)


@pytest.mark.medium
def test_every_changed_byte_is_detected(sealed):
    content = sealed.read_bytes()
    for place in places(len(content)):
        for bit in (1, 32, 128):
            sealed.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
            with pytest.raises(BadZipFile):
                check_seal(sealed)


def test_every_cut_is_detected(sealed):
    content = sealed.read_bytes()
    for size in [0, 1, 21, 22, *places(len(content))]:
        sealed.write_bytes(content[:size])
        with pytest.raises(BadZipFile):
            check_seal(sealed)


def test_a_checkpoint_of_an_earlier_version_has_the_checksums_of_its_members(sealed, tmp_path):
    old = tmp_path / "old.ckpt"
    torch.save({"weight": torch.randn(40, 40)}, old)
    check_seal(old)
    content = old.read_bytes()
    with ZipFile(old) as archive:
        (data,) = (each for each in archive.infolist() if each.filename.endswith("data/0"))
    place = data.header_offset + data.file_size // 2 + 200
    old.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(BadZipFile, match="bad checksum"):
        check_seal(old)


def test_what_is_sealed_already_is_refused(sealed):
    with pytest.raises(BadZipFile, match="without a comment"):
        seal(sealed)

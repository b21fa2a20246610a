"""The checksum of a checkpoint covers every byte of the file."""

import random
from zipfile import BadZipFile

import pytest
import torch

from headcount.training.seal import LENGTH, check_seal, seal


@pytest.mark.medium
def test_every_changed_byte_and_every_cut_is_detected(tmp_path):
    """Some anywhere, and all of the checksum and the record before it."""
    sealed = tmp_path / "last.ckpt"
    torch.save({"global_step": 3, "weight": torch.randn(40, 40)}, sealed)
    seal(sealed)
    check_seal(sealed)
    assert torch.load(sealed, weights_only=True, mmap=True)["weight"].shape == (40, 40)
    content = sealed.read_bytes()
    places = [*random.Random(1).sample(range(len(content)), 100), *range(len(content) - LENGTH - 30, len(content))]
    changed = [
        content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :] for place in places for bit in (1, 128)
    ]
    for other in (*changed, *(content[:size] for size in (0, 1, 21, 22, *places))):
        sealed.write_bytes(other)
        with pytest.raises(BadZipFile):
            check_seal(sealed)


def test_a_file_without_a_checksum_has_those_of_its_members(tmp_path):
    path = tmp_path / "other.ckpt"
    torch.save({"weight": torch.ones(40, 40)}, path)
    check_seal(path)
    content = path.read_bytes()
    place = content.index(torch.ones(400).numpy().tobytes())
    path.write_bytes(content[:place] + b"x" + content[place + 1 :])
    with pytest.raises(BadZipFile, match="bad checksum"):
        check_seal(path)

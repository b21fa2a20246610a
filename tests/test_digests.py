"""Digests of large files: computed once, and again whenever the file may have changed."""

import hashlib
import os

import pytest

from headcount.data.corpora import digests
from headcount.data.corpora.digests import file_digest


@pytest.fixture
def computed(tmp_path, monkeypatch):
    """The paths whose digest was computed; large is whatever has a byte, and no file is too young."""
    paths, compute = [], digests._computed
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "LARGE", 1)
    monkeypatch.setattr(digests, "SETTLED", -1.0)
    monkeypatch.setattr(digests, "_computed", lambda path: (paths.append(path), compute(path))[1])
    return paths


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "train.de"
    path.write_bytes(b"eins\n")
    return path


def sha256(content):
    return hashlib.sha256(content).digest()


def test_a_file_that_did_not_change_is_read_once(file, computed):
    assert [file_digest(file) for _ in range(3)] == [sha256(b"eins\n")] * 3
    assert computed == [file]


def test_a_change_that_keeps_size_and_time_is_noticed(file, computed):
    file_digest(file)
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    file.write_bytes(b"zwei\n")
    os.utime(file, ns=times)
    assert file_digest(file) == sha256(b"zwei\n")
    other = file.with_name("other")
    other.write_bytes(b"drei\n")
    os.utime(other, ns=times)
    other.replace(file)
    assert file_digest(file) == sha256(b"drei\n")


def test_a_file_just_written_is_read_again(file, computed, monkeypatch):
    monkeypatch.setattr(digests, "SETTLED", 3600.0)
    file_digest(file)
    file_digest(file)
    assert computed == [file, file]


def test_small_files_are_read_each_time(file, computed, monkeypatch, tmp_path):
    monkeypatch.setattr(digests, "LARGE", 100)
    assert file_digest(file) == file_digest(file) == sha256(b"eins\n")
    assert len(computed) == 2
    assert not (tmp_path / "cache").exists()


def test_a_damaged_cache_or_none_is_no_obstacle(file, computed, tmp_path):
    file_digest(file)
    (kept,) = (tmp_path / "cache" / "headcount" / "digests").iterdir()
    for content in ("{", "[]", '{"state": 1}'):
        kept.write_text(content)
        assert file_digest(file) == sha256(b"eins\n")
    kept.unlink()
    kept.parent.rmdir()
    kept.parent.write_text("in the way")
    assert file_digest(file) == sha256(b"eins\n")


def test_a_user_without_a_home_directory_has_no_cache(file, computed, monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(digests.Path, "home", home)
    assert [file_digest(file), file_digest(file)] == [sha256(b"eins\n")] * 2
    assert len(computed) == 2

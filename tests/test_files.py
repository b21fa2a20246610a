"""Files that are written whole or not at all."""

import os
from pathlib import Path

import pytest

from headcount.files import remove_parts, replacing, write_bytes, write_text


def test_a_file_is_written_whole_with_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    write_text(tmp_path / "a", "one\r\ntwo\n")
    assert (tmp_path / "a").read_bytes() == b"one\r\ntwo\n"
    write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "plain"]


def test_after_an_exception_the_old_file_is_unchanged(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")

    def stop_half_way() -> None:
        with replacing(tmp_path / "a") as beside:
            beside.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_half_way()
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_no_link_is_followed_and_no_pipe_is_replaced(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "a").symlink_to(victim)
    write_text(tmp_path / "a", "new")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "a").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is no regular file"):
        write_text(tmp_path / "pipe", "x")
    assert (tmp_path / "pipe").is_fifo()


def test_the_file_before_gets_a_name_of_its_own_once_the_new_one_is_written(tmp_path: Path) -> None:
    for content in ("one", "two"):
        with replacing(tmp_path / "a", before=tmp_path / "a-1") as beside:
            beside.write_text(content)
            assert (tmp_path / "a").exists() == (content == "two")
    assert [(tmp_path / name).read_text() for name in ("a", "a-1")] == ["two", "one"]


def test_what_killed_processes_were_writing_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    kept = {"a", ".b.part", "folder/.c.0123456789abcdeg.part"}
    for name in (*kept, ".a.0123456789abcdef.part", "folder/.step-1.safetensors.00ff00ff00ff00ff.part"):
        (tmp_path / name).touch()
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "d"):
        remove_parts(tmp_path)  # the name is one that `replacing` gives
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == kept

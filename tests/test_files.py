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


def test_what_killed_processes_were_writing_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("a", "folder/b.part", ".a.0123456789abcdef.part", "folder/.step-1.safetensors.00ff00ff00ff00ff.part"):
        (tmp_path / name).touch()
    remove_parts(tmp_path)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"a", "b.part"}

import os
from pathlib import Path

import pytest

from headcount.files import remove_parts, replacing, write_bytes, write_text


def test_a_file_is_written_whole_and_nothing_stays_beside(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "one\r\ntwo\n")
    assert (tmp_path / "a").read_bytes() == b"one\r\ntwo\n"
    write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


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


def test_no_link_is_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("a", "a.part", ".a.part"):
        (folder / name).symlink_to(victim)
    write_text(folder / "a", "new")
    assert victim.read_text() == "precious"
    assert not (folder / "a").is_symlink()


def test_no_rename_takes_the_place_of_a_pipe_or_a_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is no regular file"):
        write_text(tmp_path / "pipe", "x")
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    write_text(tmp_path / "a", "x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_the_file_before_gets_a_name_of_its_own_once_the_new_one_is_written(tmp_path: Path) -> None:
    for content in ("one", "two"):
        with replacing(tmp_path / "a", before=tmp_path / "a-1") as beside:
            beside.write_text(content)
            assert (tmp_path / "a").exists() == (content == "two")
    assert [(tmp_path / name).read_text() for name in ("a", "a-1")] == ["two", "one"]


def test_what_killed_processes_were_writing_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("a", ".b.part", "folder/.c.0123456789abcdeg.part"):
        (tmp_path / name).touch()
    for name in (".a.0123456789abcdef.part", "folder/.step-1.safetensors.00ff00ff00ff00ff.part"):
        (tmp_path / name).touch()
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "d"):
        remove_parts(tmp_path)  # the name is one that `replacing` gives
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"a", ".b.part", "folder/.c.0123456789abcdeg.part"}

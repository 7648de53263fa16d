"""Files that are written: whole, and only where a regular file may be."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cabai import InvalidInput
from cabai.support.files import write_whole


def test_a_file_keeps_its_mode_and_nothing_else_is_left(tmp_path):
    target = tmp_path / "new folder" / "out.csv"
    write_whole(target, b"old")
    target.chmod(0o600)
    write_whole(str(target), b"new")
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (b"new", 0o600)
    assert os.listdir(target.parent) == ["out.csv"]


def test_a_link_to_a_file_stays_and_its_file_is_written(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target, link, again = tmp_path / "elsewhere" / "out.csv", tmp_path / "link.csv", tmp_path / "again.csv"
    target.write_bytes(b"old")
    link.symlink_to("elsewhere/out.csv")
    again.symlink_to(link)
    assert write_whole(again, b"new") == again
    assert link.is_symlink()
    assert again.is_symlink()
    assert target.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == ["again.csv", "elsewhere", "link.csv"]
    assert os.listdir(tmp_path / "elsewhere") == ["out.csv"]


def test_a_link_to_nothing_is_refused_and_nothing_is_made_there(tmp_path):
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "missing" / "out.csv")
    with pytest.raises(InvalidInput, match=r"cannot write .*: it is a link to .*out.csv, which does not exist"):
        write_whole(link, b"new")
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(InvalidInput, match="cannot write"):
        write_whole(link, b"new")
    assert os.listdir(tmp_path) == ["link.csv"]


def test_what_is_not_a_regular_file_is_refused_and_stays(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to a device").symlink_to("/dev/null")
    for path, what in [
        (tmp_path / "pipe", "a device or a pipe"),
        (tmp_path / "folder", "a folder"),
        (tmp_path / "to a device", "a device or a pipe"),
        (Path("/dev/full"), "a device or a pipe"),
        (tmp_path, "a folder"),
    ]:
        before = path.lstat()
        with pytest.raises(InvalidInput, match=f"cannot write {path}: it is {what}"):
            write_whole(path, b"new")
        assert path.lstat().st_ino == before.st_ino
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe", "to a device"]


def test_a_folder_that_may_not_be_written_in_is_refused_before_any_work():
    """In a process that is not root, for whom nothing is forbidden; in a folder that anyone may enter."""
    code = (
        "import os, sys\n"
        "from cabai.support.files import file_to_write\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "for name in ('out.csv', 'new/out.csv'):\n"
        "    try: file_to_write(os.path.join(sys.argv[1], name))\n"
        "    except Exception as error: print(error)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"cannot write {folder}/{name}: you may not write in {folder}." for name in ("out.csv", "new/out.csv")
    ]


def test_a_name_that_no_file_can_have_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    write_whole(tmp_path / ("x" * 255), b"new")
    for path in (tmp_path / ("x" * 256), tmp_path / "file" / "below", tmp_path / "file" / "far" / "below"):
        with pytest.raises(InvalidInput, match="cannot write"):
            write_whole(path, b"new")
    for path in ("", "a\0b"):
        with pytest.raises(InvalidInput, match="a file's name must not be empty or contain NUL"):
            write_whole(path, b"new")

"""Directories kept open: so many at a time, none closed under its user, none found where it lies no more."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.journal.filesystem import OsFS
from holdfast.journal.open_dirs import DIRECTORY, OpenDirs


@pytest.fixture
def dirs(tmp_path):
    for name in ("a", "b", "c", "d"):
        (tmp_path / name / "below").mkdir(parents=True)
    found = OpenDirs(os.open(tmp_path, DIRECTORY), kept=2)
    yield found
    found.close()


def names(fd):
    return os.listdir(fd)  # noqa: PTH208 - pathlib cannot list a descriptor


def listed(dirs, path):
    with dirs.at(path) as fd:
        return names(fd)


def test_any_number_of_directories_is_used_and_few_are_open(dirs):
    for _ in range(3):
        for name in ("a", "b", "c", "d"):
            assert listed(dirs, f"{name}/below") == []
            assert listed(dirs, name) == ["below"]
            assert len(dirs) <= 3


def test_one_in_use_is_not_closed_under_its_user(dirs):
    with ExitStack() as used:
        fds = [used.enter_context(dirs.at(name)) for name in ("a", "b", "c", "d")]
        assert [names(fd) for fd in fds] == [["below"]] * 4
        assert len(dirs) == 5
    assert listed(dirs, "a/below") == []
    assert len(dirs) == 3


def test_one_that_moved_is_found_by_its_new_path_alone(dirs, tmp_path):
    with dirs.at("a") as fd:
        (tmp_path / "a").rename(tmp_path / "moved")
        dirs.forget("a")
        assert names(fd) == ["below"]
    with pytest.raises(FileNotFoundError):
        dirs.at("a")
    assert listed(dirs, "moved") == ["below"]


def test_a_directory_that_is_made_anew_is_the_new_one(tmp_path):
    fs = OsFS(tmp_path)
    fs.mkdir("x")
    fs.mkdir("x/y")
    fs.close(fs.open("x/y/old", "create"))
    fs.rename("x", "away")
    fs.mkdir("x")
    fs.mkdir("x/y")
    assert fs.listdir("x/y") == []
    assert fs.listdir("away/y") == ["old"]


def test_a_thousand_directories_leave_descriptors_for_others(tmp_path):
    fs = OsFS(tmp_path)
    before = len(list(Path("/dev/fd").iterdir()))
    for number in range(1000):
        fs.mkdir(str(number))
        fs.sync_dir(str(number)) if number % 100 == 0 else fs.listdir(str(number))
    assert len(list(Path("/dev/fd").iterdir())) - before < 300

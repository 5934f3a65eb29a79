"""A user whom the system does not know, as in a container that runs under any number, has a name and a home."""

from __future__ import annotations

import getpass
import os
import pwd
import stat
import tempfile
from pathlib import Path

import pytest

from training.process.user import complete_user, name_user


@pytest.fixture(autouse=True)
def unknown(tmp_path, monkeypatch):
    def find(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", find)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_user_without_an_entry_is_named_by_the_number():
    assert name_user() == str(os.getuid())
    complete_user()
    assert getpass.getuser() == str(os.getuid())  # what libraries ask, here and in the processes that this one starts


def test_a_name_and_a_home_from_the_environment_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("USER", "ann")
    monkeypatch.setenv("HOME", str(tmp_path))
    complete_user()
    assert (name_user(), Path.home(), os.environ.get("LOGNAME")) == ("ann", tmp_path, None)


def test_a_user_without_a_home_gets_a_private_one_and_the_same_again(tmp_path):
    complete_user()
    home = tmp_path / f"technique-search-{os.getuid()}"
    assert (Path.home(), stat.S_IMODE(home.stat().st_mode)) == (home, 0o700)
    del os.environ["HOME"]
    complete_user()
    assert Path.home() == home


@pytest.mark.parametrize(
    ("home", "writable", "stays"),
    [
        ("/", False, False),  # docker run --user 12345
        ("/nowhere/at/all", False, False),
        ("/", True, True),
        ("/nowhere/at/all", True, True),  # libraries make it
        ("here", False, True),  # a home that is read only has the caches of libraries
    ],
)
def test_only_a_home_that_is_none_is_replaced(home, writable, stays, tmp_path, monkeypatch):
    place = str(tmp_path) if home == "here" else home
    monkeypatch.setenv("HOME", place)
    monkeypatch.setattr(os, "access", lambda *_: writable)
    complete_user()
    assert os.environ["HOME"] == (place if stays else f"{tmp_path}/technique-search-{os.getuid()}")


def test_a_home_of_another_user_is_not_taken(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"technique-search-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    complete_user()
    assert Path.home().parent == tmp_path
    assert Path.home().name.startswith("technique-search-")
    assert Path.home().name != f"technique-search-{os.getuid()}"

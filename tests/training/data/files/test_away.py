"""Images that are away for a moment are waited for; a file that is missing or broken is refused at once."""

import errno
import os
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from training.data.files import decode
from training.data.files.check import find_unreadable
from training.data.files.decode import UnreadableImage
from training.data.files.images import ImageFiles
from training.errors import DataAway


@pytest.fixture
def images(tmp_path):
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    Image.new("RGB", (8, 8), (200, 0, 0)).save(tmp_path / "photos" / "cat" / "0.png")
    return ImageFiles([str(tmp_path / "photos" / "cat" / "0.png")])


@pytest.fixture
def slept(monkeypatch):
    """The pauses, which take no time; after two of them `then` is called."""
    pauses = SimpleNamespace(seconds=[], then=lambda: None)

    def sleep(seconds):
        pauses.seconds.append(seconds)
        if len(pauses.seconds) == 2:
            pauses.then()

    monkeypatch.setattr("training.data.files.away.time", SimpleNamespace(sleep=sleep))
    return pauses


def test_a_folder_that_is_away_for_seconds_is_waited_for(images, slept, tmp_path):
    expected = images[0]
    (tmp_path / "photos").rename(tmp_path / "elsewhere")
    slept.then = lambda: (tmp_path / "elsewhere").rename(tmp_path / "photos")
    assert np.array_equal(images[0], expected)
    assert slept.seconds == [1, 2]


def test_after_a_minute_the_image_is_named(images, slept, tmp_path):
    (tmp_path / "photos").rename(tmp_path / "elsewhere")
    with pytest.raises(DataAway, match=r"cat/0\.png: this image is away, perhaps with its disk"):
        images[0]
    assert sum(slept.seconds) == 60


PASSING = ("EIO", "ESTALE", "ETIMEDOUT", "ENOTCONN", "EHOSTDOWN", "ENETDOWN", "ENETUNREACH")


@pytest.mark.parametrize("name", [*PASSING, "EACCES", "EPERM", "ELOOP", "ENOENT"])
def test_only_errors_of_a_disk_that_may_pass_are_waited_for(images, slept, monkeypatch, name):
    expected, number = images[0], getattr(errno, name)
    state = SimpleNamespace(is_away=True)

    def refuse(path):
        if state.is_away:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(decode, "refuse_irregular", refuse)
    slept.then = lambda: setattr(state, "is_away", False)
    if name in PASSING:
        assert np.array_equal(images[0], expected)
    else:
        with pytest.raises(UnreadableImage):
            images[0]
    assert slept.seconds == ([1, 2] if name in PASSING else [])


def test_images_on_a_disk_that_is_away_are_not_skipped_as_unreadable(images, tmp_path):
    (tmp_path / "photos").rename(tmp_path / "elsewhere")
    with pytest.raises(DataAway):
        find_unreadable(images.paths, whole=True)


def test_a_process_of_a_loader_names_the_image_alone():
    told = (
        "Caught DataAway in DataLoader worker process 0.\nOriginal Traceback\ntraining.errors.DataAway: a.png: away\n"
    )
    assert str(DataAway(told)) == "a.png: away"

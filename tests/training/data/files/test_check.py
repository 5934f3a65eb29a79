import os
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from training.data.files import check
from training.data.files.cache import cached, key_of_files
from training.data.files.check import check_images, find_unreadable
from training.data.load_data import load_data
from training.data.sources.digits import Digits
from training.data.sources.image_folder import ImageFolder
from training.errors import UserError


def cut_short(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def test_good_images_and_images_in_memory_pass(photos):
    check_images(load_data(ImageFolder(root=str(photos({"cat": 5, "dog": 5})))))
    check_images(load_data(Digits()))


def test_the_first_broken_file_is_named_and_the_others_counted(photos):
    root = photos({"cat": 10, "dog": 10}, size=(64, 64), suffix=".jpg")
    cut_short(root / "cat" / "003.jpg")
    (root / "cat" / "004.jpg").write_bytes(b"")
    (root / "dog" / "001.jpg").write_text("<html>")
    data = load_data(ImageFolder(root=str(root)))
    with pytest.raises(UserError, match=r"\.jpg: this image .*2 more.*data\.skip_unreadable=true"):
        check_images(data)
    check_images(load_data(ImageFolder(root=str(root), skip_unreadable=True)))


def test_only_the_headers_of_many_images_are_read(photos, monkeypatch):
    root = photos({"cat": 2, "dog": 2}, size=(64, 64), suffix=".jpg")
    paths = sorted(str(path) for path in root.rglob("*.jpg"))
    cut_short(root / "cat" / "000.jpg")
    (root / "dog" / "000.jpg").write_bytes(b"")
    assert list(find_unreadable(paths)) == [paths[0], paths[2]]
    monkeypatch.setattr(check, "DECODED_IMAGES", 3)
    assert find_unreadable(paths) == {paths[2]: "empty file"}


def test_one_image_that_is_too_large_is_named_before_the_trials_start(photos, monkeypatch):
    root = photos({"cat": 10, "dog": 10})
    Image.new("L", (1, 200)).save(root / "cat" / "thin.png")
    data = load_data(ImageFolder(root=str(root)))
    for most in (check.DECODED_IMAGES, 3):  # also where the headers alone are read
        monkeypatch.setattr(check, "DECODED_IMAGES", most)
        with pytest.raises(UserError, match=r"thin\.png: .*1×200 pixels, one side more than 150 times the other"):
            check_images(data)
    check_images(load_data(ImageFolder(root=str(root), skip_unreadable=True)))


def test_the_result_is_cached_until_a_file_changes(photos, monkeypatch):
    root = photos({"cat": 3})
    paths = sorted(str(path) for path in root.rglob("*.png"))
    assert find_unreadable(paths) == {}
    scans = []
    monkeypatch.setattr(check, "_scan", lambda *given: scans.append(given) or [])
    find_unreadable(paths)
    assert not scans
    (root / "cat" / "000.png").write_bytes(b"")
    find_unreadable(paths)
    assert len(scans) == 1


def test_a_file_that_became_readable_again_is_accepted(photos):
    root = photos({"cat": 3})
    file = root / "cat" / "000.png"
    good, times = file.read_bytes(), (1e9, 1e9)
    file.write_bytes(b"x" * len(good))
    os.utime(file, times)
    assert list(find_unreadable([str(file)])) == [str(file)]
    file.write_bytes(good)
    os.utime(file, times)  # same size, same time: the same key
    assert find_unreadable([str(file)]) == {}


def test_a_computed_result_is_read_by_other_processes(own_cache):
    assert cached("kind", "key", lambda: [1, 2]) == [1, 2]
    code = "from training.data.files.cache import cached; print(cached('kind', 'key', None))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[1, 2]\n"


def test_a_damaged_result_is_computed_again(own_cache):
    cached("kind", "key", lambda: 1)
    next(own_cache.rglob("key.json")).write_text('{"val')
    assert cached("kind", "key", lambda: 2) == 2
    assert cached("kind", "key", lambda: 3) == 2
    assert not list(own_cache.rglob("*.tmp"))


def test_a_failed_computation_leaves_nothing_behind():
    def fail():
        raise UserError("no")

    with pytest.raises(UserError):
        cached("kind", "key", fail)
    assert cached("kind", "key", lambda: 4) == 4


def test_without_a_cache_folder_the_result_is_computed_each_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert [cached("kind", "key", lambda value=value: value) for value in (1, 2)] == [1, 2]


def test_several_processes_compute_once(tmp_path):
    code = (
        "import sys, time; from training.data.files.cache import cached\n"
        "def slow():\n    open(sys.argv[1], 'a').write('x'); time.sleep(0.3); return 7\n"
        "assert cached('kind', 'key', slow) == 7"
    )
    log = tmp_path / "log"
    running = [subprocess.Popen([sys.executable, "-c", code, str(log)]) for _ in range(4)]
    assert [process.wait(timeout=30) for process in running] == [0] * 4
    assert log.read_text() == "x"


def test_the_key_follows_paths_and_times(tmp_path):
    file = tmp_path / "a.png"
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(file)
    key = key_of_files([str(file)])
    assert key == key_of_files([str(file)])
    os.utime(file, (time.time() + 5,) * 2)
    assert key != key_of_files([str(file)])
    assert key_of_files([str(tmp_path / "none.png")]) != key_of_files([str(tmp_path / "other.png")])

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from training.data.files.check import check_images
from training.data.files.pixel_store import shared_array
from training.data.load_data import load_data
from training.data.pipelines.loaders import make_loaders
from training.recipe import read_recipe

SHAPE = (64, 16, 16, 3)


def fill_with(value):
    def fill(pixels):
        pixels[:] = value

    return fill


def never(pixels):
    raise AssertionError("computed again")


def test_a_second_request_reads_the_file_of_the_first(own_cache):
    first = shared_array("k", SHAPE, fill_with(7))
    second = shared_array("k", SHAPE, never)
    assert (first == 7).all()
    assert np.array_equal(first, second)
    assert not second.flags.writeable
    assert [file.name for file in own_cache.rglob("*.npy")] == ["k.npy"]


def test_an_error_while_filling_leaves_no_file(own_cache):
    with pytest.raises(KeyError):
        shared_array("k", SHAPE, lambda pixels: {}["no"])
    assert not [*own_cache.rglob("*.npy"), *own_cache.rglob("*.tmp")]
    assert (shared_array("k", SHAPE, fill_with(1)) == 1).all()


def _die_while_writing(ready):
    def fill(pixels):
        pixels[:32] = 1
        ready.set()
        time.sleep(60)

    shared_array("k", SHAPE, fill)


def test_a_process_that_is_killed_while_it_writes_does_no_damage():
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=_die_while_writing, args=(ready,))
    process.start()
    assert ready.wait(30)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert (shared_array("k", SHAPE, fill_with(5)) == 5).all()


def _count_fills(folder, queue):
    def fill(pixels):
        Path(folder, f"filled-{os.getpid()}").touch()
        time.sleep(0.3)
        pixels[:] = 3

    queue.put(int(shared_array("k", SHAPE, fill).sum()))


def test_two_processes_at_the_same_time_fill_the_file_once(tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_count_fills, args=(tmp_path, queue)) for _ in range(4)]
    for process in processes:
        process.start()
    assert {queue.get(timeout=30) for _ in processes} == {3 * np.prod(SHAPE)}
    for process in processes:
        process.join()
    assert len(list(tmp_path.glob("filled-*"))) == 1


def test_a_truncated_file_is_written_again(own_cache):
    shared_array("k", SHAPE, fill_with(1))
    (file,) = own_cache.rglob("*.npy")
    with open(file, "r+b") as stream:
        stream.truncate(1000)
    assert (shared_array("k", SHAPE, fill_with(2)) == 2).all()


def test_the_least_recently_used_file_is_removed_and_stays_usable_for_its_users(monkeypatch, own_cache):
    monkeypatch.setenv("TECHNIQUE_SEARCH_CACHE_MB", "3")
    shape = (1000, 1000)
    arrays = []
    for number, key in enumerate("abc"):
        arrays.append(shared_array(key, shape, fill_with(number)))
        time.sleep(0.02)
    shared_array("a", shape, never)
    time.sleep(0.02)
    arrays.append(shared_array("d", shape, fill_with(3)))
    left = {file.stem for file in own_cache.rglob("*.npy")}
    assert left < set("abcd")
    assert "d" in left
    assert "b" not in left
    assert sum(file.stat().st_size for file in own_cache.rglob("*.npy")) <= 3 * 2**20
    assert [(number, array) for number, array in enumerate(arrays) if not (array == number).all()] == []


def test_what_another_process_removes_meanwhile_is_passed_over(monkeypatch, own_cache):
    find, filled = Path.glob, []
    monkeypatch.setattr(Path, "glob", lambda folder, name: [*find(folder, name), folder / name.replace("*", "gone")])
    shared_array("k", SHAPE, lambda pixels: filled.append("k"))
    assert [file.stem for file in own_cache.rglob("*.npy")] == ["k"]
    monkeypatch.setattr(os, "utime", lambda file: file.unlink() or os.stat(file))
    shared_array("k", SHAPE, never)
    assert filled == ["k"]


def test_data_above_the_limit_is_not_shared(streaming, own_cache):
    assert (shared_array("k", SHAPE, fill_with(4)) == 4).all()
    assert not list(own_cache.rglob("*.npy"))


def test_without_a_writable_folder_each_process_gets_its_own_data(monkeypatch, own_cache):
    (own_cache / "technique-search").write_text("in the way")
    assert (shared_array("k", SHAPE, fill_with(4)) == 4).all()


def test_a_full_disk_raises_an_error_and_no_signal(monkeypatch, own_cache):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert (shared_array("k", SHAPE, fill_with(4)) == 4).all()
    assert not [*own_cache.rglob("*.npy"), *own_cache.rglob("*.tmp")]


def test_files_are_decoded_once_per_machine(photos, monkeypatch):
    values = {"name": "image_folder", "root": str(photos({"cat": 20, "dog": 20}))}
    preprocessing = {"image_size": 12, "crop": 1.0, "interpolation": "bilinear", "mean": [0.5] * 3, "std": [0.2] * 3}
    for crop in ("none", "resized"):
        augmentation = {"policy": "affine_colour", "backend": "tensor"}
        parts = {"augmentation": augmentation, "random_crop": {"name": crop}}
        recipe = read_recipe({"data": values, "preprocessing": preprocessing, **parts})
        data = load_data(recipe.data)
        check_images(data)
        first = [images for images, _ in make_loaders(data, recipe, workers=0).train]
        with monkeypatch.context() as patch:
            patch.setattr("training.data.files.decode.read_image", never)
            second = [images for images, _ in make_loaders(data, recipe, workers=0).train]
        assert [(one, other) for one, other in zip(first, second, strict=True) if not np.array_equal(one, other)] == []


def test_each_image_size_has_decoded_pixels_of_its_own(photos, monkeypatch):
    values = {"name": "image_folder", "root": str(photos({"cat": 10, "dog": 10}, size=(50, 40)))}
    shared = {"crop": 1.0, "interpolation": "bilinear", "mean": [0.5] * 3, "std": [0.2] * 3}

    def prepare(size):
        recipe = read_recipe(
            {
                "data": values,
                "preprocessing": {"image_size": size, **shared},
                "augmentation": {"backend": "tensor", "policy": "none"},
            }
        )
        return next(iter(make_loaders(load_data(recipe.data), recipe, workers=0).train))[0]

    first = {size: prepare(size) for size in (16, 24)}
    assert {size: tuple(images.shape[1:]) for size, images in first.items()} == {16: (3, 16, 16), 24: (3, 24, 24)}
    monkeypatch.setattr("training.data.preprocessing.transform.fit", never)
    assert [(size, images) for size, images in first.items() if not torch.equal(prepare(size), images)] == []


def test_a_changed_file_is_decoded_again(photos):
    from PIL import Image

    values = {"name": "image_folder", "root": str(photos({"cat": 10, "dog": 10}))}
    preprocessing = {"image_size": 12, "crop": 1.0, "interpolation": "bilinear", "mean": [0.5] * 3, "std": [0.2] * 3}
    recipe = read_recipe(
        {"data": values, "preprocessing": preprocessing, "augmentation": {"policy": "none", "backend": "tensor"}}
    )
    data = load_data(recipe.data)
    before = make_loaders(data, recipe, workers=0).train.dataset.pixels[0].clone()
    Image.fromarray(np.full((12, 10, 3), 9, np.uint8)).save(data.train.images.paths[0])
    after = make_loaders(data, recipe, workers=0).train.dataset.pixels[0]
    assert (after == 9).all()
    assert (before != 9).any()

"""A state file of ours that a full disk or a kill has damaged is as good as none."""

from __future__ import annotations

import errno
import json
import os
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import training.model.letters as letters
from ledger.folder import SweepFolder
from search.runner.machines.ray_process import end_left, write_own
from search.runner.worker import killed_for_memory
from tests.damaged_files import DAMAGES
from training.contract.specs import Backbone
from training.data.files.unpacked import store
from training.errors import UserError
from training.process.text_files import keep_json

every_damage = pytest.mark.parametrize("damage", list(DAMAGES))


@every_damage
def test_a_damaged_mark_of_a_worker_says_nothing_about_the_next(damage, tmp_path):
    assert killed_for_memory(tmp_path) is False
    DAMAGES[damage](tmp_path / "worker.json")
    assert killed_for_memory(tmp_path) is False
    if damage != "a folder":  # nothing of ours makes one, so nothing of ours removes it
        assert set(json.loads((tmp_path / "worker.json").read_text())) == {"host", "kills"}


@every_damage
def test_a_damaged_name_of_the_driver_stops_neither_the_sentence_nor_the_next_driver(damage, tmp_path):
    folder = SweepFolder(tmp_path)
    with folder.locked():
        DAMAGES[damage](tmp_path / "driver.json")
        with pytest.raises(UserError, match="is running in another process"), SweepFolder(tmp_path).locked():
            pass
    with folder.locked():
        pass
    if damage != "a folder":
        (tmp_path / "driver.json").write_text("{}")
        DAMAGES[damage](tmp_path / "driver.json")
    with folder.locked():
        if damage != "a folder":
            assert json.loads((tmp_path / "driver.json").read_text())["pid"] == os.getpid()


@every_damage
def test_a_damaged_list_of_processes_ends_none(damage, tmp_path, monkeypatch):
    ended = []
    monkeypatch.setattr("search.runner.machines.ray_process.psutil.Process.kill", ended.append)
    write_own(tmp_path / "processes.json")
    DAMAGES[damage](tmp_path / "processes.json")
    end_left(tmp_path / "processes.json")
    assert ended == []


@every_damage
def test_damaged_weights_of_letters_are_learnt_again(damage, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    learnt = []
    monkeypatch.setattr(letters, "_pretrain", lambda _: learnt.append(1) or {"conv.weight": torch.ones(3)})
    backbone = Backbone(name="test_resnet", weights="letters")
    letters.letters_weights(backbone)
    letters.letters_weights(backbone)
    assert len(learnt) == 1
    (file,) = tmp_path.glob("*/letters-*.safetensors")
    DAMAGES[damage](file)
    if damage == "a folder":
        with pytest.raises(UserError, match="cannot be written to .Is a directory"):
            letters.letters_weights(backbone)
    else:
        assert letters.letters_weights(backbone)["conv.weight"].tolist() == [1, 1, 1]
        assert len(learnt) == 2


@every_damage
def test_a_damaged_index_of_unpacked_images_is_made_again(damage, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    images = [(b"\x89PNG one", "cat"), (b"\x89PNG two", "dog")]

    def unpack():
        stored = store(SimpleNamespace(), "key", lambda: iter(images))
        return [(Path(path).read_bytes(), label) for path, label in stored]

    assert unpack() == images
    DAMAGES[damage](next(tmp_path.glob("*/unpacked/key/index.json")))
    assert unpack() == images


def test_a_full_disk_leaves_a_state_file_as_it_was(tmp_path, monkeypatch):
    file = tmp_path / "state.json"
    keep_json(file, {"number": 1})

    @contextmanager
    def open_on_a_full_disk(path):
        def write_half(content):
            path.write_bytes(content[:5])
            raise OSError(errno.ENOSPC, "No space left on device")

        yield SimpleNamespace(write=write_half)

    monkeypatch.setattr("training.process.text_files.open_new", open_on_a_full_disk)
    with pytest.raises(OSError, match="No space left"):
        keep_json(file, {"number": 2})
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("state.json", b'{"number": 1}')]


def test_a_worker_that_cannot_write_its_mark_does_not_die_of_it(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("training.process.text_files.open_new", refuse)
    assert killed_for_memory(tmp_path) is False

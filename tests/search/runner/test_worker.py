import errno
import json
import logging
import re
import shutil
import socket
import sys
from types import SimpleNamespace

import pytest
import ray.tune
import torch

import training.train
from search.arguments import VERBOSE
from search.runner import worker
from search.runner.worker import bootstrap, killed_for_memory, run_trial
from training.errors import DataAway, LostDevice, UserError
from training.recipe import Recipe, read_recipe

CONFIG = {"trial": 0, "recipe": Recipe().model_dump(), "gpus": 0, "cpus": 1.0, "uses_share": False, "reported": 0}
CONFIG |= {"metric": "val_accuracy", "score": "best", "selector": {}, "resources": {"cpu": 1}}
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setattr(worker, "_own_node", lambda: "here")


def have_it_end(how, folder, monkeypatch, crashes=0):
    """Return the messages of a worker whose training returns or raises this."""

    def train(*arguments, **named):
        if isinstance(how, Exception):
            raise how
        return SimpleNamespace(state=how)

    recorded = []
    monkeypatch.setattr(training.train, "train", train)
    monkeypatch.setattr(ray.tune, "report", lambda message: recorded.append(json.loads(message["message"])))
    run_trial({**CONFIG, "folder": str(folder), "crashes": crashes})
    return recorded


@pytest.mark.parametrize(
    ("how", "end", "reason"),
    [
        ("diverged", "diverged", "the loss became infinite or NaN"),
        (UserError("There is no such backbone."), "failed", "There is no such backbone."),
        (ValueError("a shape\nand more"), "failed", "ValueError: a shape; see {folder}/log.txt"),
        (
            OSError(errno.EACCES, "Permission denied"),
            "failed",
            "PermissionError: [Errno 13] Permission denied; see {folder}/log.txt",
        ),
        (torch.OutOfMemoryError("CUDA out of memory. Tried\nto"), "out_of_memory", "CUDA out of memory. Tried"),
        (MemoryError(), "out_of_memory", "out of memory"),
    ],
)
def test_a_worker_reports_how_a_training_ended(how, end, reason, tmp_path, monkeypatch):
    place = {"node": "here"} if end == "failed" else {}
    expected = {"end": end, "reason": reason.format(folder=tmp_path), **place}
    assert have_it_end(how, tmp_path, monkeypatch) == [expected]


@pytest.mark.parametrize("verbose", [True, False])
def test_a_worker_of_a_verbose_sweep_prints_its_log_with_the_trial(verbose, tmp_path, monkeypatch, capsys):
    if verbose:
        monkeypatch.setenv(VERBOSE, "1")
    folder = tmp_path / "0007"
    folder.mkdir()
    have_it_end(ValueError("a shape"), folder, monkeypatch)
    assert bool(re.search(r"^0007 .* ERROR training: ValueError: a shape$", capsys.readouterr().err, re.M)) is verbose
    assert "ERROR training: ValueError: a shape" in (folder / "log.txt").read_text()


def test_a_trial_whose_images_are_away_says_so_and_can_go_on(tmp_path, monkeypatch):
    away = DataAway("photos/1.png: this image is away, perhaps with its disk (Stale file handle).")
    expected = {"end": "interrupted", "reason": str(away), "away": True}
    assert have_it_end(away, tmp_path, monkeypatch) == [expected]


def test_a_trial_that_begins_while_its_folder_is_away_waits_for_it(tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr("training.data.files.away.time", SimpleNamespace(sleep=slept.append))
    recipe = read_recipe({"data": {"name": "image_folder", "root": str(tmp_path / "photos")}})
    monkeypatch.setitem(CONFIG, "recipe", recipe.model_dump())
    (message,) = have_it_end("completed", tmp_path / "trial", monkeypatch)
    reason = f"{tmp_path}/photos: the images are no longer there."
    assert message == {"end": "interrupted", "reason": reason, "away": True}
    assert sum(slept) == 60
    (tmp_path / "photos").mkdir()
    assert have_it_end("completed", tmp_path / "trial", monkeypatch) == []


def test_a_worker_adds_no_message_if_the_reports_show_the_end(tmp_path, monkeypatch):
    assert have_it_end("completed", tmp_path, monkeypatch) == []
    assert have_it_end("stopped", tmp_path, monkeypatch) == []


def test_a_full_disk_ends_the_sweep_and_not_the_trial(tmp_path, monkeypatch):
    (recorded,) = have_it_end(FULL, tmp_path, monkeypatch)
    assert recorded == {"end": "interrupted", "reason": f"{tmp_path}: No space left on device", "fatal": True}


def test_a_trial_whose_folder_is_removed_is_lost_and_begins_again(tmp_path, monkeypatch):
    folder = tmp_path / "0007"

    def train(*arguments, **named):
        shutil.rmtree(folder)
        (folder / "last.ckpt").open("wb")

    monkeypatch.setattr(training.train, "train", train)
    with pytest.raises(LostDevice, match="0007 was removed, so the trial begins again"):
        run_trial({**CONFIG, "folder": str(folder), "crashes": 0})
    assert not logging.getLogger("training").handlers  # the next trial of this worker has a log of its own


def test_a_trial_whose_worker_was_killed_for_memory_is_not_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr("search.runner.worker.killed_for_memory", lambda folder: True)
    (recorded,) = have_it_end(AssertionError("it was tried"), tmp_path, monkeypatch, crashes=1)
    assert recorded["end"] == "out_of_memory"


def test_a_worker_that_the_system_killed_for_memory_is_recognised(tmp_path):
    assert not killed_for_memory(tmp_path)  # the first worker of a trial
    assert not killed_for_memory(tmp_path)  # a worker that died of something else
    mark = json.loads((tmp_path / "worker.json").read_text())
    (tmp_path / "worker.json").write_text(json.dumps({**mark, "kills": mark["kills"] - 1}))
    assert killed_for_memory(tmp_path)
    (tmp_path / "worker.json").write_text(json.dumps({"host": f"not-{socket.gethostname()}", "kills": -1}))
    assert not killed_for_memory(tmp_path)


@pytest.mark.parametrize(("gpus", "share"), [(0.25, 0.25), (1.0, 1.0), (2.0, 1.0), (0.0, 1.0)])
def test_a_trial_with_a_part_of_a_gpu_may_fill_that_part_of_its_memory(gpus, share, tmp_path, monkeypatch):
    seen = []

    def train(*arguments, resources, **named):
        seen.append(resources.gpu_share)
        return SimpleNamespace(state="completed")

    monkeypatch.setattr(training.train, "train", train)
    run_trial({**CONFIG, "folder": str(tmp_path), "crashes": 0, "gpus": gpus})
    assert seen == [share]


def test_a_worker_finds_our_packages_before_those_of_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "module_of_ours.py").write_text("def name(x): return 'ours' + x")
    monkeypatch.setattr(sys, "path", ["somewhere", *sys.path])
    monkeypatch.setattr(worker, "project_root", lambda: str(tmp_path))
    assert bootstrap("module_of_ours", "name")("!") == "ours!"
    assert sys.path[0] == str(tmp_path)

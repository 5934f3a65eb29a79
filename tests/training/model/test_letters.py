from __future__ import annotations

import multiprocessing
import os
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import training.model.letters as letters
from training.contract.specs import Backbone
from training.data.load_data import load_data
from training.errors import UserError
from training.recipe import read_recipe
from training.train import train

LETTERS = Backbone(name="test_resnet", weights="letters")


def test_letters_look_like_the_digits():
    images, labels = letters.render_letters(20, seed=0)
    digits = load_data(read_recipe({}).data).train.images
    assert images.shape == (520, 32, 32, 3)
    assert images.dtype == digits.dtype
    assert np.array_equal(np.bincount(labels), [20] * 26)
    # As bright on the whole, and filling the image from top to bottom as the digits do.
    assert abs(images.mean() - digits.mean()) < 35
    heights = [(pictures[..., 0].max(axis=2) > 64).sum(axis=1).mean() for pictures in (images, digits)]
    assert abs(heights[0] - heights[1]) < 4
    again, _ = letters.render_letters(20, seed=0)
    assert np.array_equal(images, again)


@pytest.mark.slow
def test_weights_from_letters_beat_none_by_far(tmp_path):
    scores = {}
    for weights in ("letters", "none"):
        recipe = read_recipe(
            {
                "data": {"name": "digits", "train_size": 200},
                "backbone": {"name": "test_resnet", "weights": weights},
                "epochs": 2,
                "batch_size": 16,
                "unfreeze": {"level": "last"},
                "optimizer": {"name": "momentum", "lr": 0.05},
            }
        )
        (tmp_path / weights).mkdir()
        scores[weights] = train(recipe, tmp_path / weights).reports[-1].score
    assert scores["letters"] > 0.8
    assert scores["letters"] > scores["none"] + 0.3


@pytest.fixture
def fake_pretraining(monkeypatch, tmp_path):
    """A fast pretraining that counts its calls."""

    def pretrain(backbone):
        (tmp_path / f"{time.time_ns()}.{os.getpid()}.asked").touch()
        time.sleep(0.3)
        return {"weight": torch.arange(3.0)}

    monkeypatch.setattr(letters, "_pretrain", pretrain)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda: len(list(tmp_path.glob("*.asked")))


def test_letters_are_trained_once_and_then_cached(fake_pretraining):
    first, second = letters.letters_weights(LETTERS), letters.letters_weights(LETTERS)
    assert fake_pretraining() == 1
    assert torch.equal(first["weight"], second["weight"])
    letters.letters_weights(LETTERS.model_copy(update={"source": "torchvision"}))
    assert fake_pretraining() == 2


def ask(queue):
    queue.put(letters.letters_weights(LETTERS)["weight"].tolist())


def test_several_processes_may_ask_at_once(fake_pretraining, tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=ask, args=(queue,)) for _ in range(3)]
    for process in processes:
        process.start()
    answers = [queue.get(timeout=30) for _ in processes]
    for process in processes:
        process.join(timeout=30)
    assert answers == [[0.0, 1.0, 2.0]] * 3
    assert fake_pretraining() == 1
    files = list((tmp_path / "cache").rglob("*.safetensors"))
    assert len(files) == 1
    assert load_file(files[0])["weight"].tolist() == [0.0, 1.0, 2.0]


def test_a_cache_folder_that_cannot_be_written_gives_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"backbone\.weights=letters: .*cannot be written to.*XDG_CACHE_HOME"):
        letters.letters_weights(LETTERS)


def test_pretraining_leaves_the_head_to_the_data(monkeypatch):
    monkeypatch.setattr(letters, "IMAGES_PER_LETTER", 3)
    monkeypatch.setattr(letters, "EPOCHS", 1)
    before = torch.get_rng_state()
    weights = letters._pretrain(LETTERS)
    assert [name for name in weights if name.startswith("fc")] == []
    assert {"layer4.0.conv1.weight", "layer4.0.bn1.running_mean"} <= weights.keys()
    assert torch.equal(torch.get_rng_state(), before)

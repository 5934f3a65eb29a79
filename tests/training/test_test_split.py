"""Nothing in a training, and no choice that it makes, reads the test split: `sweep confirm` opens it once, at the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

import training.train
from training.data.load_data import load_data


class Forbidden:
    def __getattr__(self, name):
        raise AssertionError(f"the test split was read: {name}")


RECIPES = {
    "found rate": {"optimizer": {"name": "momentum", "lr": "auto"}, "schedule": {"name": "cosine"}},
    "average": {"averaging": {"name": "swa"}, "epochs": 3, "class_balance": {"name": "weights"}},
    "features": {"unfreeze": {"level": "last", "milestones": [1], "milestone_lr": "auto"}},
    "new head": {"classifier_retraining": {"epochs": 1}, "flip_average": {"enabled": True}},
    "one by one": {"augmentation": {"policy": "affine_colour", "backend": "albumentations"}},
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_training_never_reads_the_test_split(name, fit, monkeypatch):
    monkeypatch.setattr(training.train, "load_data", lambda spec: replace(load_data(spec), test=Forbidden()))
    assert fit(**RECIPES[name]).state == "completed"


def test_a_teacher_never_reads_the_test_split(fit, monkeypatch):
    teacher = fit(epochs=1).folder
    monkeypatch.setattr(training.train, "load_data", lambda spec: replace(load_data(spec), test=Forbidden()))
    assert fit(distillation={"teacher": str(teacher)}).state == "completed"

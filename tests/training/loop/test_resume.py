"""A training that was stopped and resumed ends with the same result as an uninterrupted one."""

from __future__ import annotations

import os
import random

import pytest
import torch

from tests.training.conftest import TINY
from training.contract.technique import Technique
from training.errors import UserError
from training.examples import list_examples
from training.loop.classifier import Classifier
from training.recipe import Recipe
from training.small_trainings import is_legal, list_differences

NEEDS_A_GPU = {"cudnn_benchmark"}
# Their resume is tested in test_data_parallel.py and test_distillation.py.
NEEDS_MORE = {"data_parallel", "distillation"}

# Several techniques together, because each state must survive a resume beside the others.
RECIPES = {
    "plain": {"optimizer": {"name": "sgd", "lr": 0.05}},
    "mixing": {
        "mixup": {"alpha": 0.4},
        "cutmix": {"alpha": 1.0},
        "fmix": {"alpha": 1.0},
        "mixing": {"probability": 0.8},
        "random_erasing": {"probability": 0.5},
        "class_balance": {"name": "sampler"},
        "label_smoothing": {"alpha": 0.1},
        "random_crop": {"name": "padded"},
        "flip": {"probability": 0.5},
        "augmentation": {"policy": "affine_colour"},
        "loss": {"name": "poly"},
        "flip_average": {"enabled": True},
        "accumulation": {"batches": 3},
        "optimizer": {"name": "nesterov", "lr": 0.02},
        "schedule": {"name": "cosine_restarts", "cycles": 2, "warmup_epochs": 0.5},
        "averaging": {"name": "swa", "start": 0.2},
    },
    "adaptive": {
        "optimizer": {"name": "adamw", "lr": 0.01},
        "schedule": {"name": "cosine", "warmup_epochs": 1.0},
        "gradient_clipping": {"value": 0.5},
        "precision": {"mode": "bf16-mixed"},
        "unfreeze": {"level": "most"},
        "averaging": {"name": "ema"},
        "drop_path": {"rate": 0.3},
        "data": {"name": "digits", "train_size": 90, "epoch_size": 40},
    },
    "wrapped": {
        "lora": {"rank": 4, "b_rate": 4.0, "dropout": 0.2},
        "unfreeze": {"level": "most"},
        "activation_checkpointing": {"enabled": True},
        "channels_last": {"enabled": True},
    },
    "decomposed": {
        "lora": {"rank": 4, "dora": True, "rank_stabilised": True},
        "unfreeze": {"level": "last", "adapt_statistics": True},
        "head_dropout": {"rate": 0.2},
    },
    "three copies": {
        "repeated_augmentation": {"repeats": 3},
        "augmentation": {"policy": "three_augment"},
        "class_balance": {"name": "sampler"},
        "data": {"name": "digits", "train_size": 64, "epoch_size": 40},
    },
    "retrained": {
        "classifier_retraining": {"epochs": 2},
        "optimizer": {"name": "adamw", "lr": 0.01, "weight_decay": 0.1},
        "schedule": {"name": "cosine", "warmup_epochs": 0.5},
        "unfreeze": {"level": "most", "milestones": [1]},
        "mixup": {"alpha": 0.4},
        "head_dropout": {"rate": 0.2},
    },
    "two passes": {"sam": {"name": "asam"}, "mixup": {"alpha": 0.4}, "drop_path": {"rate": 0.3}},
    "64 bits": {"precision": {"mode": "64-true"}, "loss": {"name": "bce"}, "mixup": {"alpha": 0.4}},
    "compiled": {"compilation": {"backend": "aot_eager"}, "epochs": 2, "flip_average": {"enabled": True}},
    "grouped": {
        "optimizer": {"name": "adam8bit", "lr": 0.01, "weight_decay": 0.1},
        "layer_decay": {"factor": 0.7},
        "head_lr": {"factor": 5.0},
        "l2_sp": {"alpha": 0.1, "beta": 0.01},
        "backbone": {"name": "test_resnet", "weights": "letters"},
        "no_decay": {"enabled": True},
        "lr_scaling": {"rule": "sqrt"},
        "accumulation": {"schedule": [[1, 2], [3, 1]]},
        "gradient_clipping": {"value": 0.5},
        "schedule": {"name": "cosine"},
    },
    "schedule-free": {
        "optimizer": {"name": "schedule_free"},
        "schedule": {"name": "constant", "warmup_epochs": 0.5},
        "drop_path": {"rate": 0.3},
        "unfreeze": {"level": "last", "milestones": [1, 3]},
    },
    "soap": {"optimizer": {"name": "soap", "refresh_steps": 2}, "unfreeze": {"level": "last", "milestones": [1]}},
    "prodigy": {"optimizer": {"name": "prodigy"}, "schedule": {"name": "cosine"}, "mixup": {"alpha": 0.4}},
    **{
        name: {"optimizer": {"name": name}}
        for name in ("adagrad", "rmsprop", "adafactor", "nadamw", "lion", "lamb", "adan", "muon")
    },
}
# A technique in none of them is resumed alone.
RECIPES |= {
    name: next(list_examples(name))
    for name, info in Recipe.model_fields.items()
    if isinstance(info.default, Technique)
    if name not in set().union(*RECIPES.values()) | NEEDS_A_GPU | NEEDS_MORE
}


def assert_same(one, other):
    assert list_differences(one.outcome, one.folder, other.outcome, other.folder) == []


# These share their code with others in the list.
RARE = {"compiled", "adagrad", "rmsprop", "nadamw", "lion", "lamb", "adan"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in RARE else n for n in RECIPES])
def test_a_stopped_training_continues_to_the_same_numbers(name, fit, tmp_path):
    recipe = {"epochs": 4, **RECIPES[name]}
    whole = fit(**recipe)
    # "mixing" between the two minima of its schedule, "retrained" within the epochs of the new head
    stopped_at = {"plain": 1, "compiled": 1, "mixing": 3, "retrained": 3}.get(name, 2)
    stopped = fit(folder=tmp_path, **recipe, on_report=lambda report: report.epoch < stopped_at)
    assert stopped.state == "stopped"
    assert len(stopped.outcome.reports) == stopped_at
    heard = []
    resumed = fit(folder=tmp_path, **recipe, on_report=lambda report: heard.append(report.epoch) or True)
    assert resumed.state == "completed"
    assert heard == list(range(1, recipe["epochs"] + 1))
    assert resumed.outcome.reports[:stopped_at] == stopped.outcome.reports
    assert_same(whole, resumed)


def draw_pairs(count):
    """Draw pairs of examples of two techniques that can be combined, each technique about equally often."""
    draw = random.Random(0)
    left_out = NEEDS_A_GPU | NEEDS_MORE | {"precision", "compilation"}  # some of them need a GPU, or take a minute
    examples = {
        name: list(list_examples(name))
        for name, info in Recipe.model_fields.items()
        if isinstance(info.default, Technique) or name in ("optimizer", "schedule")
        if name not in left_out
    }
    names = sorted(examples)
    while count:
        first, second = (draw.choice(examples[name]) for name in draw.sample(names, 2))
        pair = {**second, **first}
        shared = first.keys() & second.keys()
        if any(first[name] != second[name] for name in shared) or not is_legal({**TINY, "epochs": 3, **pair}):
            continue
        count -= 1
        yield pytest.param(pair, id=f"{next(iter(first))} and {next(iter(second))} {count}")


@pytest.mark.slow
@pytest.mark.parametrize("pair", draw_pairs(25))
def test_two_techniques_together_continue_to_the_same_numbers(pair, fit, tmp_path):
    recipe = {"epochs": 3, **pair}
    last = 1 + len(str(pair)) % 2  # after the first or the second epoch
    whole = fit(**recipe)
    fit(folder=tmp_path, **recipe, on_report=lambda report: report.epoch < last)
    assert_same(whole, fit(folder=tmp_path, **recipe))


@pytest.mark.parametrize("junk", [b"", b"junk", b"\x80\x02.", b"PK\x03\x04 cut short"])
def test_a_training_with_a_damaged_checkpoint_starts_again_and_gives_the_same_numbers(junk, fit, tmp_path):
    recipe = {"optimizer": {"name": "sgd", "lr": 0.05}}
    fit(folder=tmp_path, **recipe, on_report=lambda report: False)
    (tmp_path / "last.ckpt").write_bytes(junk)
    assert_same(fit(**recipe), fit(folder=tmp_path, **recipe))


class Killed(BaseException):
    """An exception that no code catches."""


@pytest.mark.parametrize("moment", ["best.partial", "best.next", "last.partial", "last.ckpt", "best.ckpt"])
def test_a_training_that_is_killed_while_it_writes_continues_to_the_same_numbers(moment, fit, tmp_path, monkeypatch):
    collect = Classifier.collect

    def improve(self, score):  # each epoch is the best so far, and writes both files
        metrics, error, points = collect(self, score)
        return {**metrics, "val_accuracy": (self.current_epoch + 1) / 10}, error, points

    monkeypatch.setattr(Classifier, "collect", improve)
    recipe = {"optimizer": {"name": "sgd", "lr": 0.01}, "epochs": 2}  # short, so that perhaps nothing is left to train
    whole = fit(**recipe)
    with pytest.MonkeyPatch.context() as patch:
        kill_at_the_second(moment, patch)
        with pytest.raises(Killed):
            fit(folder=tmp_path, **recipe)
    assert len(list(tmp_path.iterdir())) >= 2
    resumed = fit(folder=tmp_path, **recipe)
    assert resumed.state == "completed"
    assert_same(whole, resumed)
    assert torch.load(tmp_path / "best.ckpt", weights_only=True)["epoch"] == 2
    assert {path.name for path in tmp_path.iterdir()} <= {"last.ckpt", "best.ckpt", "best.partial", "last.partial"}


def kill_at_the_second(name, patch):
    """Raise directly after a file of this name was written or renamed for the second time."""
    replace, save = os.replace, torch.save
    count = 0

    def count_file(path):
        nonlocal count
        count += str(path).endswith(name)
        if count == 2:
            raise Killed

    def watch_replace(source, target):
        replace(source, target)
        count_file(target)

    def watch_save(state, target, **options):
        save(state, target, **options)
        count_file(getattr(target, "name", ""))

    patch.setattr(os, "replace", watch_replace)
    patch.setattr(torch, "save", watch_save)


def test_a_completed_training_reports_all_epochs_again_without_training(fit, tmp_path, monkeypatch):
    import training.train as module

    first = fit(folder=tmp_path)
    monkeypatch.setattr(module, "build_model", lambda *arguments: pytest.fail("nothing is left to train"))
    heard = []
    again = fit(folder=tmp_path, on_report=lambda report: heard.append(report) or True)
    assert again.state == "completed"
    assert heard == first.outcome.reports == again.outcome.reports


def test_a_stopped_training_stays_stopped_when_it_is_started_again(fit, tmp_path):
    fit(folder=tmp_path, epochs=3, on_report=lambda report: report.epoch < 2)
    before = (tmp_path / "last.ckpt").read_bytes()
    heard = []
    again = fit(folder=tmp_path, epochs=3, on_report=lambda report: heard.append(report.epoch) or False)
    assert again.state == "stopped"
    assert heard == [1]
    assert (tmp_path / "last.ckpt").read_bytes() == before


def test_a_folder_of_another_recipe_is_refused(fit, tmp_path):
    fit(folder=tmp_path, epochs=1)
    with pytest.raises(
        UserError, match=r"last\.ckpt: holds a training with optimizer\.lr=0\.05, not 0\.1\. Name another"
    ):
        fit(folder=tmp_path, epochs=1, optimizer={"name": "momentum", "lr": 0.1})
    with pytest.raises(UserError, match="metric=val_accuracy, not val_loss"):
        fit(folder=tmp_path, epochs=1, metric="val_loss")


def test_a_training_that_a_version_without_some_technique_has_begun_continues(fit, tmp_path):
    recipe = {"optimizer": {"name": "sgd", "lr": 0.05}}
    fit(folder=tmp_path, **recipe, on_report=lambda report: False)
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    for state in saved["callbacks"].values():
        if "asked" in state:
            del state["asked"]["head_dropout"], state["described"]["recipe"]["head_dropout"]
    torch.save(saved, tmp_path / "last.ckpt")
    assert_same(fit(**recipe), fit(folder=tmp_path, **recipe))


def test_loader_workers_are_asked_for_the_images_of_the_resumed_epoch(tiny_recipe, load_weights, tmp_path):
    from training.train import Resources, train

    # Large enough images that workers prepare them.
    recipe = tiny_recipe(data={"name": "digits", "train_size": 32}, preprocessing={"image_size": 72})
    recipe = recipe.model_copy(
        update={"augmentation": recipe.augmentation.model_copy(update={"backend": "albumentations"})}
    )
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    train(recipe, whole)
    train(recipe, parts, on_report=lambda report: False)
    train(recipe, parts, resources=Resources(workers=1))
    ours, theirs = load_weights(whole), load_weights(parts)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []

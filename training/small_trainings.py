"""Small trainings that show whether a technique keeps its contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from training.contract.part import Part, Values
from training.contract.setup import TrainingSetup
from training.errors import UserError
from training.loop.checkpoint import read_checkpoint
from training.loop.epoch_report import Outcome, Report
from training.recipe import Recipe, read_recipe
from training.train import train

BASE: Values = {
    "data": {"name": "digits", "train_size": 23},  # not as many of each class
    "backbone": {"name": "test_resnet", "weights": "none"},
    "epochs": 4,
    "batch_size": 8,
    "optimizer": {"name": "sgd"},
}
VAL_IMAGES = 8
# Metrics that do not depend on the recipe alone.
MACHINE: tuple[str, ...] = ("images_per_second", "peak_memory_mb", "evaluation_memory_mb")
MACHINE += tuple(f"{activity}_seconds" for activity in ("train", "evaluation", "checkpoint", "finder"))


def changes_setup(name: str, values: Values, device: str = "cpu") -> bool:
    """Apply the techniques of a recipe to a small model, and return whether this one changed the set-up.

    Raises:
        ValueError: two techniques set one slot of the set-up.
    """
    import timm

    recipe = read_recipe(values)
    model = timm.create_model("test_resnet", num_classes=10)
    setup = TrainingSetup(
        model, device, 10, (4, 4), 8, class_images=(10,) * 10, read_teacher=lambda path: path  # type: ignore
    )  # fmt: skip
    changed = False
    for technique in recipe.techniques():
        before = _describe(setup)
        technique.apply(setup)
        changed |= technique is getattr(recipe, name) and _describe(setup) != before
    return changed


def _describe(setup: TrainingSetup) -> tuple[object, ...]:
    layout = [(parameter.stride(), parameter.requires_grad) for parameter in setup.model.parameters()]
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in setup.model.modules()]
    return repr(setup), layout, setup.model._compiled_call_impl is None, hooks


def vary_field(name: str, field: str, part_class: type[Part], start: Values) -> Iterator[tuple[Values, Values]]:
    """Return pairs of legal recipes that differ only in one field of a part: an example, and it with another value.

    `start` has what selects this kind of the part. The other value is the default, or one that the field's declaration
    has as an example.
    """
    info = part_class.model_fields[field]
    for example in [{name: start}, *part_class.examples]:
        for value in [*(info.examples or ()), info.default]:
            first = {**BASE, **example}
            part = first[name]
            assert isinstance(part, dict)
            second = {**first, name: {**part, field: value}}
            if is_legal(first) and is_legal(second) and read_recipe(first) != read_recipe(second):
                yield first, second


def is_legal(values: Values) -> bool:
    return find_problem(values) is None


def find_problem(values: Values) -> str | None:
    """Return why a recipe is refused; None if it is legal."""
    try:
        read_recipe(values)
    except UserError as error:
        return str(error)
    return None


def train_briefly(recipe: Recipe, folder: Path, on_report: Callable[[Report], bool] = lambda report: True) -> Outcome:
    """Train with a short validation, and without stored features."""
    return train(recipe, folder, on_report=on_report, val_images=VAL_IMAGES)


def read_all_weights(folder: Path) -> torch.Tensor:
    """Return all weights at the end of a training, float64 (count,)."""
    state = read_checkpoint(folder / "last.ckpt", ["state_dict"])["state_dict"]
    return torch.cat([value.double().flatten() for value in state.values()])


def list_differences(one: Outcome, folder: Path, other: Outcome, other_folder: Path) -> list[str]:
    """Return what differs between two trainings, such as `val_loss in epoch 2`; nothing if every bit is the same."""
    differences = [] if len(one.reports) == len(other.reports) else ["the number of epochs"]
    for ours, theirs in zip(one.reports, other.reports, strict=False):
        mine, yours = (
            {"the score": (report.score, report.best_epoch), "the steps": report.steps, **report.metrics}
            for report in (ours, theirs)
        )
        names = [name for name in mine | yours if name not in MACHINE and mine.get(name) != yours.get(name)]
        differences += [f"{name} in epoch {ours.epoch}" for name in names]
    for which in ("last", "best"):
        first, second = (
            read_checkpoint(where / f"{which}.ckpt", ["state_dict"])["state_dict"] for where in (folder, other_folder)
        )
        if first.keys() != second.keys() or not all(torch.equal(first[name], second[name]) for name in first):
            differences.append(f"the {which} weights")
    return differences

"""Does a technique keep the contract that every bundled one keeps? For the tests of a plugin, as docs/plugins.md shows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from training import small_trainings
from training.contract.own_parts import list_own
from training.contract.part import CODE, Values
from training.contract.technique import Technique
from training.errors import UserError
from training.examples import list_examples
from training.process.resources import ONE_CPU
from training.recipe import Recipe, read_recipe
from training.train import train

CLOSE = 1e-3  # relative: features are rounded in another order than in the whole model
ALL = 10**9  # more images than a data set has, so that all are evaluated


def _class_of(name: str) -> type[Technique]:
    if name not in (known := list_own()):
        raise UserError(f"{name}: no plugin has it. Load its file first; there are: {', '.join(known) or 'none'}.")
    return type(Recipe.model_fields[name].default)


def check_defaults(name: str) -> None:
    """Without arguments a technique is off (loading the plugin has refused it otherwise), and conflicts with nothing."""
    technique_class = _class_of(name)
    if sentence := technique_class().conflict(Recipe()):
        raise UserError(
            f"although it is off, it conflicts with the default recipe ({sentence}) Let conflict return None while it is off."
        )
    if not isinstance(technique_class.changes_weights, bool):
        raise UserError(f"changes_weights={technique_class.changes_weights!r} is neither True nor False.")


def _examples(technique_class: type[Technique]) -> list[dict[str, Any]]:
    if not technique_class.examples:
        raise UserError("it has no examples: give it recipes that switch it on, in the class variable examples.")
    return [{**small_trainings.BASE, **example} for example in technique_class.examples]


def check_examples(name: str) -> None:
    """Each example can be read, has the technique on, and changes the set-up; each value that a field names is legal."""
    technique_class = _class_of(name)
    for example, values in zip(technique_class.examples, _examples(technique_class), strict=True):
        if next(iter(example), None) != name:
            raise UserError(f"the first entry of the example {example} is not {name}.")
        if not getattr(read_recipe(values), name).is_on:
            raise UserError(f"the example {example} leaves it off.")
        if not small_trainings.changes_setup(name, values):
            raise UserError(f"with the example {example}, apply changes nothing in the set-up.")
    for field, info in technique_class.model_fields.items():
        for value in info.examples or ():
            tried = ({**values, name: {**values[name], field: value}} for values in _examples(technique_class))
            problems = [small_trainings.find_problem(values) for values in tried]
            if None not in problems:
                raise UserError(f"no example takes {field}={value!r}, an example of the field: {problems[-1]}")


def check_combinations(name: str) -> None:
    """Apply it together with each example of each other part; `conflict` must name what cannot work."""
    technique_class = _class_of(name)
    values = _examples(technique_class)[0]
    others = [field for field, info in Recipe.model_fields.items() if isinstance(info.default, Technique)]
    for field in others:
        for other in list_examples(field) if field != name else ():
            if other.keys() & technique_class.examples[0].keys():
                continue
            try:
                small_trainings.changes_setup(name, {**values, **other})
            except UserError:  # the conflict is named, or this machine does not support the other
                continue
            except ValueError as error:
                raise UserError(f"{error}: {name} and {field}. Name this combination in conflict.") from None


def check_effect(name: str) -> None:
    """Each hyperparameter changes the trained weights, unless the technique says that it changes none."""
    technique_class = _class_of(name)
    fields = [field for field in technique_class.model_fields if field != CODE and technique_class.changes_weights]
    with tempfile.TemporaryDirectory() as made:
        for field in fields:
            others = {
                "the default": list(small_trainings.vary_field(name, field, technique_class, {})),
                "half of the difference to the default": list(_halve(name, field, technique_class)),
            }
            if not others["the default"]:
                raise UserError(f"{field} has no second value: name one, such as Field(..., examples=[2.0]).")
            for word, pairs in others.items():
                if pairs and not any(_differ(pair, made) for pair in pairs):
                    raise UserError(
                        f"{field} does not change the training: with {word}, all weights are the same bit by bit as with "
                        "the example. Use it in apply, name a value that matters, such as Field(..., examples=[2.0]), or "
                        "write changes_weights = False."
                    )


def _halve(name: str, field: str, technique_class: type[Technique]) -> Iterator[tuple[Values, Values]]:
    """Return pairs of an example and a number between its own and the default: `apply` must use the number too."""
    info = technique_class.model_fields[field]
    for values in () if info.examples else _examples(technique_class):
        value = values[name].get(field)
        if isinstance(value, float) and isinstance(info.default, float) and value != info.default:
            second = {**values, name: {**values[name], field: (value + info.default) / 2}}
            if small_trainings.is_legal(second):
                yield values, second


def _differ(pair: tuple[Values, Values], made: str) -> bool:
    weights = []
    for values in pair:
        folder = Path(tempfile.mkdtemp(dir=made))
        small_trainings.train_briefly(read_recipe(values), folder)
        weights.append(small_trainings.read_all_weights(folder))
    return not torch.equal(*weights)


def check_resume(name: str) -> None:
    """A training that stopped and continued ends with the same bits."""
    technique_class = _class_of(name)
    for example, values in zip(technique_class.examples, _examples(technique_class), strict=True):
        with tempfile.TemporaryDirectory() as made:
            if reason := _find_break(read_recipe(values), made):
                raise UserError(f"the example {example}: {reason}")


def _find_break(recipe: Recipe, made: str) -> str | None:
    whole, parts, again = (Path(tempfile.mkdtemp(dir=made)) for _ in range(3))
    first = small_trainings.train_briefly(recipe, whole)
    small_trainings.train_briefly(recipe, parts, lambda report: report.epoch < recipe.epochs // 2)
    resumed = small_trainings.train_briefly(recipe, parts)
    if not (differences := small_trainings.list_differences(first, whole, resumed, parts)):
        return None
    if small_trainings.list_differences(first, whole, small_trainings.train_briefly(recipe, again), again):
        return (
            "two trainings with one seed differ. Take random numbers from torch's, NumPy's or Python's own generator, "
            "which each training seeds, and keep no state outside the training."
        )
    return (
        f"a training that stopped and continued ends with other numbers ({differences[0]}). What a callback remembers "
        "over epochs must be in its state_dict, and come back in load_state_dict."
    )


def check_features(name: str) -> None:
    """With `keeps_features`, the head trains on stored features as on images, but for rounding."""
    technique_class = _class_of(name)
    if not technique_class.keeps_features:
        return
    recipe = read_recipe({**_examples(technique_class)[0], "unfreeze": {"level": "last"}})
    weights: list[torch.Tensor] = []
    with tempfile.TemporaryDirectory() as made:
        # Nothing is stored where a number of validation images is given.
        for val_images in (None, ALL):
            folder = Path(tempfile.mkdtemp(dir=made))
            train(recipe, folder, resources=ONE_CPU, val_images=val_images)
            weights.append(small_trainings.read_all_weights(folder))
    if not torch.allclose(weights[0], weights[1], rtol=CLOSE, atol=CLOSE):
        raise UserError(
            "it declares keeps_features, but with unfreeze.level=last the training on stored features gives other weights "
            "than on images. Remove the declaration."
        )


CHECKS = (check_defaults, check_examples, check_combinations, check_effect, check_resume, check_features)

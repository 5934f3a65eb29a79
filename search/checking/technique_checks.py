"""`sweep techniques --check FILE`: does an own technique keep the contract that every bundled one keeps?"""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ledger.formatting import plural
from search.checking.checks import Check
from spaces.examples import list_examples
from training import contract_checks
from training.contract.part import CODE, Values
from training.contract.technique import Technique
from training.errors import Diverged, UserError, describe_error
from training.plugin_kinds import techniques_of
from training.process.resources import ONE_CPU
from training.recipe import Recipe, read_recipe
from training.train import train

CLOSE = 1e-3  # relative: features are rounded in another order than in the whole model
ALL = 10**9  # more images than a data set has, so that all are evaluated


def check_file(file: str) -> Iterator[Check]:
    """Check each technique that a file defines, which must be loaded already; one check after the other."""
    if not (names := techniques_of(file)):
        raise UserError(f"--check={file}: it defines no technique. Train with other classes instead: sweep train.")
    for name in names:
        technique_class = type(Recipe.model_fields[name].default)
        parts: dict[str, Callable[[str, type[Technique]], str]] = {
            "defaults": _check_defaults,
            "examples": _check_examples,
            "combinations": _check_combinations,
            "effect": _check_effect,
            "resume": _check_resume,
        }
        if technique_class.keeps_features:
            parts["features"] = _check_features
        for word, part in parts.items():
            check = _run(f"{word} of {name}", partial(part, name, technique_class), file)
            yield check
            if word == "examples" and not check.is_ok:
                break  # the others need them


def _run(word: str, part: Callable[[], str], file: str) -> Check:
    try:
        return Check(word, True, part())
    except UserError as error:
        sentence = str(error)
    except Diverged:
        sentence = "a small training of an example diverges: its loss is no number."
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any fault of the file
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        where = f" in line {lines[-1]}" if lines else ""
        sentence = f"its code raised {describe_error(error)}{where}."
    return Check(word, False, sentence)


def _check_defaults(name: str, technique_class: type[Technique]) -> str:
    # own.load has refused a file whose defaults are on.
    if sentence := technique_class().conflict(Recipe()):
        raise UserError(
            f"although it is off, it conflicts with the default recipe ({sentence}) Let conflict return None while it is off."
        )
    if not isinstance(technique_class.changes_weights, bool):
        raise UserError(f"changes_weights={technique_class.changes_weights!r} is neither True nor False.")
    return "without arguments it is off, and it conflicts with nothing."


def _examples(technique_class: type[Technique]) -> list[dict[str, Any]]:
    if not technique_class.examples:
        raise UserError("it has no examples: give it recipes that switch it on, in the class variable examples.")
    return [{**contract_checks.BASE, **example} for example in technique_class.examples]


def _check_examples(name: str, technique_class: type[Technique]) -> str:
    for example, values in zip(technique_class.examples, _examples(technique_class), strict=True):
        if next(iter(example), None) != name:
            raise UserError(f"the first entry of the example {example} is not {name}.")
        if not getattr(read_recipe(values), name).is_on:
            raise UserError(f"the example {example} leaves it off.")
        if not contract_checks.changes_setup(name, values):
            raise UserError(f"with the example {example}, apply changes nothing in the set-up.")
    for field, info in technique_class.model_fields.items():
        for value in info.examples or ():
            if problem := _find_illegal(name, field, value, technique_class):
                raise UserError(f"no example takes {field}={value!r}, an example of the field: {problem}")
    return f"{plural(len(technique_class.examples), 'example')} can be read, and each changes the set-up."


def _find_illegal(name: str, field: str, value: object, technique_class: type[Technique]) -> str | None:
    """Return why none of the examples takes another value of a field; None if one does."""
    problem = None
    for values in _examples(technique_class):
        try:
            read_recipe({**values, name: {**values[name], field: value}})
        except UserError as error:
            problem = str(error)
        else:
            return None
    return problem


def _check_combinations(name: str, technique_class: type[Technique]) -> str:
    """Apply it together with each example of each other part; `conflict` must name what cannot work."""
    values, together = _examples(technique_class)[0], 0
    others = [field for field, info in Recipe.model_fields.items() if isinstance(info.default, Technique)]
    for field in others:
        for other in list_examples(field) if field != name else ():
            if other.keys() & technique_class.examples[0].keys():
                continue
            try:
                contract_checks.changes_setup(name, {**values, **other})
            except UserError:  # the conflict is named, or this machine does not support the other
                continue
            except ValueError as error:
                raise UserError(f"{error}: {name} and {field}. Name this combination in conflict.") from None
            together += 1
    return f"it can be applied beside {together} examples of other techniques, and names its conflicts with the rest."


def _check_effect(name: str, technique_class: type[Technique]) -> str:
    fields = [field for field in technique_class.model_fields if field != CODE]
    if not technique_class.changes_weights:
        return "it says that it changes no weights, so none are compared."
    with tempfile.TemporaryDirectory() as made:
        for field in fields:
            others = {
                "the default": list(contract_checks.vary_field(name, field, technique_class, {})),
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
    return f"{plural(len(fields), 'hyperparameter')} ({', '.join(fields)}): each changes the trained weights."


def _halve(name: str, field: str, technique_class: type[Technique]) -> Iterator[tuple[Values, Values]]:
    """Return pairs of an example and a number between its own and the default: `apply` must use the number too."""
    info = technique_class.model_fields[field]
    for values in () if info.examples else _examples(technique_class):
        value = values[name].get(field)
        if isinstance(value, float) and isinstance(info.default, float) and value != info.default:
            second = {**values, name: {**values[name], field: (value + info.default) / 2}}
            if contract_checks.is_legal(second):
                yield values, second


def _differ(pair: tuple[Values, Values], made: str) -> bool:
    weights = []
    for values in pair:
        folder = Path(tempfile.mkdtemp(dir=made))
        contract_checks.train_briefly(read_recipe(values), folder)
        weights.append(contract_checks.read_all_weights(folder))
    return contract_checks.differ(*weights)


def _check_resume(name: str, technique_class: type[Technique]) -> str:
    for example, values in zip(technique_class.examples, _examples(technique_class), strict=True):
        with tempfile.TemporaryDirectory() as made:
            if reason := _find_break(read_recipe(values), made):
                raise UserError(f"the example {example}: {reason}")
    return "a training that stopped and continued ends with the same bits."


def _find_break(recipe: Recipe, made: str) -> str | None:
    """Return why a resumed training differs from an uninterrupted one; None if it does not."""
    whole, parts, again = (Path(tempfile.mkdtemp(dir=made)) for _ in range(3))
    first = contract_checks.train_briefly(recipe, whole)
    contract_checks.train_briefly(recipe, parts, lambda report: report.epoch < recipe.epochs // 2)
    resumed = contract_checks.train_briefly(recipe, parts)
    if not (differences := contract_checks.list_differences(first, whole, resumed, parts)):
        return None
    if contract_checks.list_differences(first, whole, contract_checks.train_briefly(recipe, again), again):
        return (
            "two trainings with one seed differ. Take random numbers from torch's, NumPy's or Python's own generator, "
            "which each training seeds, and keep no state outside the training."
        )
    return (
        f"a training that stopped and continued ends with other numbers ({differences[0]}). What a callback remembers "
        "over epochs must be in its state_dict, and come back in load_state_dict."
    )


def _check_features(name: str, technique_class: type[Technique]) -> str:
    """Train the head on stored features and on images; the results are the same but for rounding."""
    values = {**_examples(technique_class)[0], "unfreeze": {"level": "last"}}
    recipe = read_recipe(values)
    weights: list[torch.Tensor] = []
    with tempfile.TemporaryDirectory() as made:
        # Nothing is stored where a number of validation images is given.
        for val_images in (None, ALL):
            folder = Path(tempfile.mkdtemp(dir=made))
            train(recipe, folder, resources=ONE_CPU, val_images=val_images)
            weights.append(contract_checks.read_all_weights(folder))
    if not torch.allclose(weights[0], weights[1], rtol=CLOSE, atol=CLOSE):
        raise UserError(
            "it declares keeps_features, but with unfreeze.level=last the training on stored features gives other weights "
            "than on images. Remove the declaration."
        )
    return "with unfreeze.level=last, stored features give the weights that images give."

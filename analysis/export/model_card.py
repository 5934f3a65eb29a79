"""A model card: the model, its data, its scores, and how to load it (Mitchell et al. 2019)."""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path

from analysis.export.summary import Summary
from ledger.formatting import format_score, remove_controls
from spaces.load import dump_recipe
from spaces.parameters.domains import format_value
from training.data.files.images import order_names
from training.recipe import Recipe

TEMPLATES = Path(__file__).parent / "templates"


def describe(recipe: Recipe, summary: Summary, loading: str | None = None) -> str:
    """The card, in Markdown. `loading` is code in one line, which some exports have besides the code for all."""
    # These take a while to import, which a wrong name must not wait for.
    from jinja2 import Environment, FileSystemLoader

    from analysis.effects.seed_intervals import NORMAL_95

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    score_of = partial(format_score, summary["metric"])
    percent_of = partial(format_score, "val_accuracy")
    environment.filters |= {"quote": quote, "fence": _fence, "percent": percent_of, "score": score_of}
    backbone, side, test = summary["backbone"], summary["input_size"][1], summary["test"]
    half = NORMAL_95 * summary["standard_error"]
    facts = {
        "s": summary,
        "recipe_has_test": recipe.data.split_test,
        "arguments": "".join(f", {name}={value!r}" for name, value in backbone["arguments"].items()),
        "is_natural": summary["classes"] == [*order_names(summary["classes"])],
        "count": len(summary["classes"]),
        "side": side,
        "resized": int(side / summary["crop"]),
        "mean": tuple(summary["mean"]),
        "std": tuple(summary["std"]),
        "colour": tuple(round(255 * level) for level in summary["mean"]),
        "low": max(summary["score"] - half, 0.0),
        "high": min(summary["score"] + half, math.inf if summary["metric"] == "val_loss" else 1.0),
        "before": test and test["calibration"]["before"],
        "after": test and test["calibration"]["after"],
    }
    code = environment.get_template("load_model.py.j2").render(facts)
    more = {"data": format_value(recipe.data.model_dump()), "recipe": dump_recipe(recipe), "loading": loading}
    return environment.get_template("model_card.md.j2").render(facts, code=code, **more)


def quote(text: str) -> str:
    """The text as code in Markdown: a name of a class or a path could otherwise be HTML or a link, also `javascript:`."""
    line = " ".join(remove_controls(text).split()) or " "
    ticks = _longer_than_in(line, 1)
    return f"{ticks} {line} {ticks}" if "`" in line else f"{ticks}{line}{ticks}"


def _fence(code: str, language: str) -> str:
    ticks = _longer_than_in(code, 3)
    return f"{ticks}{language}\n{code}{ticks}"


def _longer_than_in(text: str, least: int) -> str:
    """More backticks than stand together anywhere in the text, so that it cannot end the code that it is in."""
    return "`" * max(least, *(len(run) + 1 for run in re.findall("`+", text)), 0)

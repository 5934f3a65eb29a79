"""Every technique has a card with facts from its own file, the full space and the benchmark."""

from __future__ import annotations

import io
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from analysis.report.technique_cards import find_card, full_space, read_cards, technique_names
from search.cli.inspect.technique_view import show_card
from spaces.parameters.domains import find_parameters
from tests.commands import call, read
from training.contract.technique import Technique
from training.errors import UserError
from training.recipe import Recipe

DOCS = Path(__file__).parents[3] / "docs"
PAGES = runpy.run_path(str(DOCS / "technique_pages.py"))
format_card, format_index = PAGES["format_card"], PAGES["format_index"]


@pytest.mark.parametrize("name", technique_names())
def test_every_technique_has_its_source_its_interactions_and_its_domain(name):
    card = find_card(name)
    assert card.source
    assert card.interactions.endswith(".")
    if name != "distillation":  # the path of a teacher is the user's
        assert any(find_parameters(full_space().get(name))), f"spaces/full.yaml does not search {name}"
    assert [field for field in card.hyperparameters if not field.description] == []


def test_every_technique_of_the_recipe_has_a_card():
    switchable = {name for name, info in Recipe.model_fields.items() if isinstance(info.default, Technique)}
    assert switchable | {"augmentation", "optimizer", "schedule"} <= set(technique_names())
    assert "data" not in technique_names()


def test_a_card_has_one_lower_bound_where_a_kind_narrows_that_of_others():
    assert "| adamw | `weight_decay` | number > 0 |" in format_card(find_card("optimizer"))


def test_a_card_has_the_content_of_the_techniques_file():
    text = format_card(find_card("label_smoothing"))
    assert "mix the target with the uniform distribution (Szegedy et al. 2016, section 7)." in text
    assert "| `alpha` | number ≥ 0, < 1 | 0.0 | Weight of the uniform distribution. |" in text
    assert "- {alpha: {uniform: [0.01, 0.5]}}" in text


def test_a_card_has_the_measured_costs():
    cost = {"values": "mixup.alpha=1.0", "model": "resnet18", "time": [1.1, 1.3], "memory": 1.05}
    gain = {"mean": -0.012, "low": -0.02, "high": -0.004}
    text = format_card(replace(find_card("mixup"), costs=({**cost, "accuracy": gain}, {**cost, "accuracy": None})))
    assert "| resnet18 | `mixup.alpha=1.0` | 1.20× (1.10-1.30) | 1.05× | -1.2 ± 0.8 points |" in text
    assert "| 1.05× | – |" in text
    assert "Not measured yet" in format_card(replace(find_card("mixup"), costs=()))


def test_the_page_is_up_to_date():
    assert (DOCS / "techniques.md").read_text() == format_index(read_cards()), "run `make docs`"


def test_an_unknown_technique_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="mixpu: there is no such technique. Did you mean mixup"):
        call("techniques", "mixpu")


def test_the_command_shows_all_techniques_or_one(capsys):
    assert "gradient_clipping" in read(capsys, "techniques")
    shown = read(capsys, "techniques", "unfreeze")
    assert "last, most, first, middle, norm_bias or full" in shown
    assert "Yosinski" in shown


@pytest.mark.parametrize("name", technique_names())
def test_a_card_fits_80_columns_with_every_value_whole(name):
    card, screen = find_card(name), io.StringIO()
    Console(file=screen, width=80).print(show_card(card, 80))
    text = screen.getvalue()
    assert [line for line in text.splitlines() if cell_len(line) > 80] == []
    assert "…" not in text
    for cost in card.costs:
        assert [word for word in cost["values"].split() if word not in text.split()] == []


def test_a_piped_card_is_plain_text(capsys):
    shown = read(capsys, "techniques", "optimizer")
    assert not re.search(r"\*\*|`|^#|\| ---| $", shown, re.MULTILINE)

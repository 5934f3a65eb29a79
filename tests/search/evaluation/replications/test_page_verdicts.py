"""The verdict of a confirmation and of an ablation comes from their own intervals, and their pages begin with it."""

from dataclasses import replace

import pytest

from analysis.effects.seed_intervals import Interval
from ledger.events import TestScored
from search.evaluation.replications.ablation import _render, describe_proof
from search.evaluation.replications.confirm_page import find_verdict
from search.evaluation.replications.findings import (
    BASELINE,
    Ablation,
    Confirmation,
    ConfirmedRecipe,
    TechniqueWorth,
    Worth,
)

SEEDS = (1, 2, 3)


def confirm(ahead: Interval | None, label: str = "0007") -> Confirmation:
    mean = Interval(0.9, 0.88, 0.92)
    best = ConfirmedRecipe(label, 0.91, (0.9, 0.89, 0.91), mean, (1, 1), ahead)
    return Confirmation("mine-confirm", "mine", "val_accuracy", SEEDS, [best], [], TestScored.model_construct())


@pytest.mark.parametrize(
    ("ahead", "verdict"),
    [(Interval(0.02, 0.01, 0.03), "proven"), (Interval(0.02, -0.01, 0.05), "open"), (None, "none")],
)
def test_a_gain_is_proven_if_its_interval_lies_above_0(ahead, verdict):
    assert find_verdict(confirm(ahead)) == verdict


def test_a_confirmed_baseline_proves_nothing():
    assert find_verdict(confirm(None, BASELINE)) == "none"


def test_another_baseline_of_the_search_is_marked():
    best = confirm(Interval(0.02, 0.01, 0.03)).winner
    assert best.name == "Trial 0007's recipe"
    assert replace(best, is_baseline=True).name == "Trial 0007's recipe (a baseline)"


def ablate(*worths: Worth) -> Ablation:
    techniques = [TechniqueWorth(f"technique{place}", "alpha=0.1", worth, None) for place, worth in enumerate(worths)]
    recipes = {"winner": Interval(0.9, 0.89, 0.91)}
    return Ablation("mine-ablate", "mine", "val_accuracy", SEEDS, len(worths), techniques, recipes, ["A note."])


HELPS = Worth(Interval(0.02, 0.01, 0.03), proven=True, likely=True)
HARMS = Worth(Interval(-0.02, -0.03, -0.01), proven=True, likely=True)
LIKELY = Worth(Interval(0.02, 0.001, 0.03), proven=False, likely=True)


def test_the_page_of_an_ablation_begins_with_what_is_proven():
    page = _render(ablate(HELPS, HARMS, LIKELY))
    sentence = "Proven to help: technique0 by 2.0 points (1.0 to 3.0) in the winner."
    assert f'<span class="v proven">proven</span> <b>{sentence}</b>' in page
    assert page.index(sentence) < page.index("Proven to harm: technique1") < page.index("Student")


def test_an_ablation_that_proves_nothing_says_how_to_go_on():
    ablation = ablate(LIKELY)
    assert list(describe_proof(ablation)) == [
        "No technique is proven to help or to harm on 3 seeds. More seeds make the intervals narrower: sweep rm "
        "mine-ablate, then sweep ablate mine --seeds N."
    ]
    assert 'class="box lead open"' in _render(ablation)

"""The benchmark of techniques: what is kept of an interrupted run, and what each variant is compared with."""

from __future__ import annotations

import pytest

from benchmarks import techniques
from benchmarks.techniques import BESIDE, DEMO, Line, Lines, measure_round
from training.errors import UserError
from training.process.resources import ONE_CPU

VARIANTS = [{"label_smoothing": {"alpha": number / 100}} for number in range(1, BESIDE + 3)]


@pytest.fixture
def trained(monkeypatch):
    """Trainings take 2 s an image, those of the baseline 1 s; smoothing of 0.05 cannot run."""
    recipes = []

    def measure(recipe, resources):
        recipes.append(recipe)
        if recipe.label_smoothing.alpha == 0.05:
            raise UserError("not here")
        return {"time": 1.0 + (recipe.label_smoothing.alpha > 0), "accuracy": 0.9}

    monkeypatch.setattr(techniques, "measure", measure)
    return recipes


def test_every_few_variants_have_a_baseline_beside_them(trained, tmp_path):
    lines = Lines(tmp_path / "lines.jsonl")
    measure_round(DEMO, 0, VARIANTS, ONE_CPU, lines, timed=True)
    smoothed = [recipe.label_smoothing.alpha > 0 for recipe in trained]
    assert smoothed == [False, *[True] * BESIDE, False, True, True]
    assert lines.read(DEMO, "label_smoothing.alpha=0.01") == [Line(DEMO, "label_smoothing.alpha=0.01", 0, 2.0, 0.9)]
    assert lines.read(DEMO, "label_smoothing.alpha=0.05") == []


def test_an_interrupted_run_trains_only_what_is_missing(trained, tmp_path):
    measure_round(DEMO, 0, VARIANTS[:5], ONE_CPU, Lines(tmp_path / "lines.jsonl"), timed=False)
    trained.clear()
    measure_round(DEMO, 0, VARIANTS[:6], ONE_CPU, Lines(tmp_path / "lines.jsonl"), timed=False)
    assert [recipe.label_smoothing.alpha for recipe in trained] == [0.0, 0.06]


def test_what_a_busy_machine_trained_is_trained_again_for_its_time(trained, tmp_path):
    lines = Lines(tmp_path / "lines.jsonl")
    for timed in (False, True):
        measure_round(DEMO, 0, VARIANTS[:1], ONE_CPU, lines, timed=timed)
    assert [line.time for line in Lines(tmp_path / "lines.jsonl").read(DEMO, "label_smoothing.alpha=0.01")] == [2.0]

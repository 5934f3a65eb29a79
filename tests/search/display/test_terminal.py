"""Leaderboard and sweeps as tables, at several widths."""

import io
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from rich.console import Console

from ledger.formatting import format_digits, format_score, format_seconds
from ledger.recipe_text import cut, short_part, short_recipe
from ledger.trials import Trials
from search.display.tables.leaderboard import REASONS, _describe_failures, leaderboard
from search.display.tables.sweeps_table import SweepRow, sweeps_table
from search.display.terminal import PIPED, make_console
from tests.made_events import make_event
from training.recipe import Recipe, read_recipe

BASELINE = Recipe()


def make_recipe(**changes):
    return read_recipe(BASELINE.model_dump() | changes)


def sweep_of(*trials, metric="val_accuracy"):
    """Trials from (state, score, error, origin, recipe), the last ones optional."""
    folded = Trials(metric)
    for number, (state, score, *rest) in enumerate(trials):
        error, origin, recipe = [*rest, *(0.01, "sampler", BASELINE)[len(rest) :]]
        event = {"trial": number, "time": 0.0}
        folded.fold(
            make_event({**event, "event": "start", "recipe": recipe.model_dump(), "params": {}, "origin": origin})
        )
        if score is not None:
            recorded = {
                "epoch": 10,
                "score": score,
                "standard_error": error,
                "best_epoch": 8,
                "metrics": {"train_seconds": 72},
            }
            folded.fold(make_event({**event, "event": "report", **recorded}))
        if state != "running":
            folded.fold(
                make_event({**event, "event": "end", "state": state, "reason": "" if score else "out of luck."})
            )
    return folded


def show(renderable, width=200):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(renderable)
    text = console.file.getvalue()
    assert [line for line in text.splitlines() if not (len(line) <= width)] == []
    return text


def sentences(renderable):
    return " ".join(show(renderable, width=PIPED).split())


def test_a_short_recipe_has_the_differences_from_the_baseline():
    recipe = make_recipe(unfreeze={"level": "most"}, label_smoothing={"alpha": 0.123456}, batch_size=64)
    assert short_recipe(recipe, BASELINE) == "batch_size=64 unfreeze.level=most label_smoothing.alpha=0.123"
    assert short_recipe(BASELINE, BASELINE) == "baseline"


def test_a_part_of_a_recipe_in_short_has_its_kind_and_what_is_not_a_default_of_it():
    recipe = read_recipe({"optimizer": {"name": "adam", "lr": 0.0123}, "batch_size": 8})
    assert short_part(recipe, "optimizer") == "name=adam, lr=0.0123"
    assert short_part(recipe, "batch_size") == "batch_size=8"


def test_another_optimizer_is_shown_by_name_without_the_defaults_of_its_own_fields():
    recipe = make_recipe(optimizer={"name": "adam", "lr": 0.002})
    assert short_recipe(recipe, BASELINE) == "optimizer.name=adam optimizer.lr=0.002"


def test_texts_are_cut_at_words_so_that_no_number_is_changed():
    assert cut("optimizer.lr=0.034 batch_size=64", 25) == "optimizer.lr=0.034 …"
    assert cut("optimizer.lr=0.034", 18) == "optimizer.lr=0.034"
    assert len(cut("x" * 50, 10)) == 10


@pytest.mark.parametrize(
    ("metric", "score", "error", "text"),
    [
        ("val_accuracy", 0.934, 0.013, "93.4 ± 1.3 %"),
        ("val_accuracy", 0.93412, 0.0004, "93.41 ± 0.04 %"),
        ("val_loss", 0.2134, 0.012, "0.213 ± 0.012"),
        ("val_ece", 0.2134, None, "0.213"),
        ("val_ece", None, None, "–"),
    ],
)
def test_scores_have_the_digits_that_their_error_allows(metric, score, error, text):
    assert format_score(metric, score, error) == text


def test_large_numbers_have_no_exponent():
    assert [format_digits(value, 3) for value in (1234.5, 12.34, 0.0012345, 2e10)] == [
        "1,230",
        "12.3",
        "0.00123",
        "2e+10",
    ]


def test_times_are_shown_in_the_two_largest_units():
    assert format_seconds(float("nan")) == "–"
    assert [format_seconds(s) for s in (0.4, 42, 192, 18420)] == ["0 s", "42 s", "3 min 12 s", "5 h 07 min"]
    assert [format_seconds(s) for s in (0, 30, 180, 600, 7200, 36000)] == [
        "0 s",
        "30 s",
        "3 min",
        "10 min",
        "2 h",
        "10 h",
    ]


def test_the_leaderboard_has_the_peak_memory_of_any_epoch_where_it_was_measured():
    trials = sweep_of(("completed", 0.9))
    assert "peak memory" not in show(leaderboard(trials))
    for epoch, peaks in enumerate(((100.4, 2345.6), (300.0, None)), start=11):
        metrics = dict(zip(("peak_memory_mb", "evaluation_memory_mb"), peaks, strict=True))
        report = {"epoch": epoch, "score": 0.9, "standard_error": 0.01, "best_epoch": 8, "metrics": metrics}
        trials.fold(make_event({"trial": 0, "time": 0.0, "event": "report", **report}))
    head, row, *_ = show(leaderboard(trials)).splitlines()
    assert "peak memory" in head
    assert "2,346 MB" in row


def test_the_leaderboard_ranks_completed_trials_before_better_ones_that_were_stopped():
    text = show(leaderboard(sweep_of(("stopped", 0.99), ("completed", 0.90), ("completed", 0.95))))
    assert [line.split()[1] for line in text.splitlines()[1:4]] == ["0002", "0001", "0000"]
    assert "1 min 12 s" in text


def test_a_narrow_leaderboard_drops_columns_and_keeps_the_whole_recipe_of_the_first():
    recipe = make_recipe(
        unfreeze={"level": "most"}, label_smoothing={"alpha": 0.12}, batch_size=64, mixup={"alpha": 0.3}
    )
    trials = sweep_of(("completed", 0.95, 0.01, "sampler", recipe), ("completed", 0.9, 0.01, "sampler", recipe))
    narrow, wide = show(leaderboard(trials), 80), show(leaderboard(trials), 200)
    assert "best at" in wide
    assert "best at" not in narrow
    assert narrow.count("label_smoothing.alpha=0.12") == 1
    assert narrow.count("…") == 1
    assert "…" not in wide


def test_the_leaderboard_shows_how_many_trials_it_leaves_out():
    assert "… and 990 more" in show(leaderboard(sweep_of(*[("completed", 0.5)] * 1000)), 80)


@pytest.mark.parametrize("state", ["failed", "diverged", "out_of_memory"])
def test_a_sweep_with_only_failures_shows_each_reason_once(state):
    text = sentences(leaderboard(sweep_of(*[(state, None)] * 5)))
    assert text.startswith("5 trials, 0000 the first of them,")
    assert text.count("out of luck.") == 1


@pytest.mark.parametrize(
    ("variable", "parents", "redraws"), [("A", ["bash"], True), ("CI", [], False), ("A", ["script"], False)]
)
def test_a_terminal_is_redrawn_unless_it_is_recorded(monkeypatch, variable, parents, redraws):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(variable, "true")
    chain = [SimpleNamespace(name=lambda name=name: name) for name in parents]
    monkeypatch.setattr(psutil, "Process", lambda: SimpleNamespace(parents=lambda: chain))
    assert make_console(Terminal()).is_interactive is redraws


def test_piped_output_is_neither_cut_nor_padded(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    recipe = make_recipe(
        unfreeze={"level": "most"}, mixup={"alpha": 0.3}, label_smoothing={"alpha": 0.12}, batch_size=64
    )
    file = io.StringIO()
    make_console(file).print(leaderboard(sweep_of(("completed", 0.95, 0.01, "sampler", recipe))))
    text = file.getvalue()
    assert "label_smoothing.alpha=0.12\n" in text
    assert "\x1b" not in text


def test_sweeps_are_listed_with_their_best_score():
    row = SweepRow("quick-1", "done", 16, 16, "val_accuracy", 0.934, 0.013, 0.0, Path("sweeps/quick-1"))
    new = SweepRow("photos-1", "running", 0, 64, "val_loss", None, None, 0.0, Path("sweeps/photos-1"))
    text = show(sweeps_table([row, new]))
    assert "93.4 ± 1.3 %" in text
    assert "0/64" in text
    assert show(sweeps_table([])).strip() == "No sweeps here yet."


@pytest.mark.parametrize(
    ("failures", "words"),
    [(1, "for 1 more reason;"), (2, "for 2 more reasons;")],
)
def test_reasons_that_are_not_listed_are_counted_in_words_that_fit_the_number(failures, words):
    numbers = range(REASONS + failures)
    trials = [SimpleNamespace(state="failed", reason=f"reason {number}", name=f"{number:04d}") for number in numbers]
    assert words in list(_describe_failures(trials))[-1]


def test_a_narrow_terminal_shows_when_a_sweep_started_rather_than_a_part_of_its_folder():
    row = SweepRow(
        "a-sweep", "completed", 30, 30, "val_accuracy", 0.9, 0.01, 0.0, Path("/home/someone/photos/sweeps/a-sweep")
    )
    narrow, wide = show(sweeps_table([row]), 80), show(sweeps_table([row]), 200)
    assert "started" in narrow
    assert "…" not in narrow
    assert "/home/someone/photos/sweeps/a-sweep" in wide

"""The measured effects agree with the planted ones, and effects without enough trials have no verdict."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.effects.design import make_design
from analysis.effects.lead import judge_lead
from analysis.effects.search_parameters import encode, list_levels, list_parameters, matches
from analysis.effects.technique_effects import (
    FEWEST_OF_LEVEL,
    NOT_ENOUGH,
    fit_sweep,
    measure_effects,
    measure_interactions,
)
from analysis.report.cautions import list_cautions
from analysis.report.choices import name_choice
from analysis.report.findings import find, measure_savings
from analysis.report.sentences import expect_reach
from analysis.report.sweep_data import collect_sweep
from analysis.report.sweep_report import render_report
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.tables import make_tables
from spaces.load import load_space
from spaces.parameters.domains import Choice, IntUniform, LogUniform, Uniform
from tests.analysis.made_up import LABEL_SMOOTHING, MIXUP, SPACE, make_header, simulate


@pytest.fixture(scope="module")
def effects(sweep) -> pd.DataFrame:
    return measure_effects(fit_sweep(sweep)).set_index(["parameter", "level"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same sweep, whose trials all ran to full length."""
    path = tmp_path_factory.mktemp("whole") / "made-up.yaml"
    path.write_text(SPACE)
    space = load_space(path, ["search.scheduler={name: none}"])
    events = [make_header("whole", space), *simulate(space).events]
    return make_tables(SweepRecord(SweepFolder(Path("sweeps", "whole")), events))


def test_planted_effects_are_found(whole):
    effects = measure_effects(fit_sweep(whole)).set_index(["parameter", "level"])
    useful = effects.loc["label_smoothing", "alpha 0.01 to 0.3"]
    harmful = effects.loc["mixup", "alpha 0.1 to 2"]
    assert (useful.verdict, harmful.verdict) == ("useful", "harmful")
    assert useful.low < LABEL_SMOOTHING < useful.high
    assert harmful.low < MIXUP < harmful.high


def test_copies_of_a_training_are_no_evidence(space):
    events = simulate(space).events
    done = [event.trial for event in events if event.event == "end" and event.state == "completed"]
    last = max(event.trial for event in events if event.event == "start")
    copies = [
        event.model_copy(update={"trial": last + 1 + place})
        for place in range(6)
        for event in events
        if getattr(event, "trial", None) == done[-1]
    ]
    tables = []
    for listed in (events, [*events, *copies]):
        record = SweepRecord(SweepFolder(Path("sweeps", "copied")), [make_header("copied", space), *listed])
        tables.append(make_tables(record))
    fits = [fit_sweep(sweep) for sweep in tables]
    pd.testing.assert_frame_equal(*(measure_effects(fit) for fit in fits))
    plain, copied = (judge_lead(sweep, fit) for sweep, fit in zip(tables, fits, strict=True))
    assert copied == replace(plain, count=plain.count + 6)
    sentence = "6 trials of 36 repeated the recipe and the seed of another one, so 30 trials count here."
    assert [sentence in warn(*pair) for pair in zip(tables, fits, strict=True)] == [False, True]


def test_a_technique_without_effect_is_not_called_useful(effects):
    levels = effects.loc["unfreeze.level"]
    assert not levels.verdict.isin(["useful", "harmful"]).any()


def test_levels_are_compared_with_the_baselines_choice(effects, sweep):
    assert ("mixup", "0.0") not in effects.index
    assert (effects.full_off > 0).all()


def test_the_choices_of_a_trial_have_the_figures_that_they_have_among_all_levels(effects, sweep):
    best = int(sweep.trials.sort_values("score").trial.iloc[-1])
    own = measure_effects(fit_sweep(sweep), best).set_index(["parameter", "level"])
    assert 0 < len(own) < len(effects)
    pd.testing.assert_frame_equal(own, effects.loc[own.index])


def warn(sweep, fitted):
    return list_cautions(sweep, judge_lead(sweep, fitted))


def without(sweep, trials):
    keep = ~sweep.trials.trial.isin(trials)
    return replace(sweep, trials=sweep.trials[keep], curves=sweep.curves[~sweep.curves.trial.isin(trials)])


def test_a_level_never_seen_at_full_length_has_no_verdict(sweep):
    done = sweep.trials[(sweep.trials.state == "completed") & (sweep.trials["mixup.alpha"] > 0)]
    effects = measure_effects(fit_sweep(without(sweep, done.trial))).set_index(["parameter", "level"])
    row = effects.loc["mixup", "alpha 0.1 to 2"]
    assert row.verdict == NOT_ENOUGH
    assert np.isnan(row.effect)
    assert row.trials > 0  # seen, but stopped


def test_a_level_gets_a_verdict_from_the_third_full_training_on(whole):
    done = whole.trials[(whole.trials.state == "completed") & (whole.trials["mixup.alpha"] > 0)].trial
    for kept, has_verdict in ((FEWEST_OF_LEVEL - 1, False), (FEWEST_OF_LEVEL, True)):
        few = without(whole, done.iloc[kept:])
        row = measure_effects(fit_sweep(few)).set_index(["parameter", "level"]).loc["mixup", "alpha 0.1 to 2"]
        assert (row.verdict != NOT_ENOUGH) == has_verdict


def test_a_part_of_an_interval_is_compared_with_the_one_value_of_the_baseline(whole):
    effects = measure_effects(fit_sweep(whole))
    rates = effects[(effects.parameter == "optimizer.lr") & (effects.full >= FEWEST_OF_LEVEL)]
    assert len(rates)
    assert (rates.full_off == 1).all()
    assert (rates.verdict != NOT_ENOUGH).all()


def test_with_too_few_full_length_trials_no_effect_has_a_verdict(sweep):
    few = without(sweep, sweep.completed.trial.iloc[2:])
    assert (measure_effects(fit_sweep(few)).verdict == NOT_ENOUGH).all()
    assert measure_interactions(fit_sweep(few)).effect.isna().all()


def test_a_lower_loss_counts_as_better(sweep):
    space = replace(sweep.space, search=sweep.space.search.model_copy(update={"metric": "val_loss"}))
    trials = sweep.trials.assign(score=1 - sweep.trials.score)
    curves = sweep.curves.assign(score=1 - sweep.curves.score)
    effects = measure_effects(fit_sweep(replace(sweep, space=space, trials=trials, curves=curves)))
    row = effects.set_index(["parameter", "level"]).loc["label_smoothing", "alpha 0.01 to 0.3"]
    assert row.verdict == "useful"
    assert row.best < row.best_off


def test_only_trials_of_full_length_are_compared(sweep):
    design = make_design(sweep)
    assert len(design.scores) == len(sweep.completed) < len(sweep.trials)
    changed = sweep.trials.assign(score=sweep.trials.score.where(sweep.trials.state == "completed", 0.99))
    same = measure_effects(fit_sweep(replace(sweep, trials=changed)))
    pd.testing.assert_frame_equal(same, measure_effects(fit_sweep(sweep)))


def test_a_point_contains_the_chosen_option_and_the_place_in_an_interval():
    recipe = {"mixup": Choice(({"alpha": 0.0}, {"alpha": LogUniform(0.1, 10.0)})), "batch_size": Choice((16, 32))}
    parameters = list_parameters(recipe)
    flat = pd.DataFrame([{"mixup.alpha": 0.0, "batch_size": 16}, {"mixup.alpha": 1.0, "batch_size": 99}])
    points = encode(parameters, flat)
    assert points["mixup"].tolist() == ["alpha=0.0", "1"]
    assert points["batch_size"].tolist() == [16, "other"] or points["batch_size"].tolist() == ["16", "other"]
    assert points["mixup[1].alpha"].iloc[1] == pytest.approx(0.5)
    names = [level.label for level in list_levels(parameters[0])]
    assert names == ["0.0", "alpha 0.1 to 10", "alpha 0.1 to 0.464", "alpha 0.464 to 2.15", "alpha 2.15 to 10"]
    inside = [matches(level, flat).tolist() for level in list_levels(parameters[0])]
    assert inside == [[True, False], [False, True], [False, False], [False, True], [False, False]]


def test_a_sweep_whose_trials_are_all_perfect_has_a_report(tmp_path):
    (tmp_path / "made-up.yaml").write_text(SPACE)
    space = load_space(tmp_path / "made-up.yaml")
    perfect = {"score": 1.0, "metrics": {}}
    events = [
        event.model_copy(update=perfect) if event.event == "report" else event for event in simulate(space).events
    ]
    sweep = make_tables(SweepRecord(SweepFolder(tmp_path / "made-up"), [make_header("made-up", space), *events]))
    assert 'data-chart="course"' in render_report(find(sweep))


def test_savings_count_the_epochs_that_stopped_trials_did_not_run(sweep):
    saved = measure_savings(sweep)
    stopped = sweep.trials[sweep.trials.state == "stopped"]
    assert saved.epochs_full - saved.epochs == (stopped.epochs - stopped.epochs_done).sum() > 0


def test_divergence_is_reported_with_the_values_where_it_is_most_frequent(sweep):
    recorded = " ".join(warn(sweep, fit_sweep(sweep)))
    assert "diverged, most often with optimizer.lr=0.0646 to 0.3" in recorded


@pytest.mark.parametrize(
    ("domain", "path", "value", "recorded"),
    [
        (LogUniform(0.003, 0.3), "optimizer.lr", 0.0031, "the best trial's 0.0031 is at the lower end of 0.003 to 0.3"),
        (Uniform(0.0, 0.3), "label_smoothing.alpha", 0.3, "the best trial's 0.3 is at the upper end of 0.0 to 0.3"),
        (Uniform(0.0, 0.3), "label_smoothing.alpha", 0.0, None),  # values below it are illegal
        (IntUniform(1, 64), "batch_size", 1, None),
        (IntUniform(1, 64), "batch_size", 64, "the best trial's 64 is at the upper end of 1 to 64"),
    ],
)
def test_a_best_value_at_the_edge_of_its_domain_is_reported_if_the_domain_could_be_wider(
    sweep, domain, path, value, recorded
):
    field, _, inner = path.partition(".")
    parameters = {inner: domain, "name": "sgd"} if field == "optimizer" else {inner: domain} if inner else domain
    space = replace(sweep.space, recipe=sweep.space.recipe | {field: parameters})
    trials = sweep.trials.copy()
    trials.loc[trials.trial == sweep.completed.trial.iloc[0], [path, "optimizer.name"]] = value, "sgd"
    changed = replace(sweep, trials=trials, space=space)
    cautions = [caution for caution in warn(changed, fit_sweep(sweep)) if path in caution]
    edges = [caution for caution in cautions if "end of" in caution]
    assert [recorded in caution for caution in edges] == [True] * bool(recorded)


def test_verdicts_agree_with_planted_effects():
    """Run three sweeps of the benchmark, and check the coverage roughly."""
    path = Path(__file__).parents[3] / "benchmarks" / "verdict.py"
    spec = importlib.util.spec_from_file_location("verdict", path)
    verdict = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(verdict)
    rows = pd.DataFrame([row for seed in (3, 4, 5) for row in verdict.judge_seed(seed, 0.005, 0.0, "random", 40)])
    table = {row["method"]: row for row in verdict.summarise(rows)}
    assert table["report"]["coverage"] > 0.7
    assert table["report"]["width"] < table["means of last reports"]["width"]
    levels = verdict.find_seen(rows)
    small, large = levels[levels["size"] < 1], levels[levels["size"] > 2]
    assert small.seen.mean() < 0.3 < 0.7 < large.seen.mean()  # as `describe_reach` says
    images = 0.8 * 0.2 / verdict.ERROR**2  # whose accuracy of 80 % has this standard error
    assert expect_reach(images, 40) < table["report"]["width"] / 2 < 4 * expect_reach(images, 40)


IN_OPTIONS = "averaging={choice: [{name: swa, lr_factor: null}, {name: swa, lr_factor: 0.3}, {name: none}]}"


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["averaging.name=swa", "averaging.lr_factor={choice: [null, 0.3, 1.0]}"], "averaging.lr_factor"),
        ([IN_OPTIONS], "averaging"),
    ],
)
def test_null_is_a_value_like_others(overrides, name, tmp_path):
    (tmp_path / "made-up.yaml").write_text(SPACE)
    space = load_space(tmp_path / "made-up.yaml", ["search.scheduler={name: none}", *overrides])
    sweep = make_tables(SweepRecord(SweepFolder(tmp_path), [make_header("nulls", space), *simulate(space).events]))
    (parameter,) = [one for one in list_parameters(space.recipe) if one.name == name]
    counts = [matches(level, sweep.recipes).sum() for level in list_levels(parameter) if not level.detail]
    assert len(counts) == 3
    assert min(counts) > 0
    assert sum(counts) == len(sweep.trials)


SCHEDULES = (
    "{choice: [{level: last, milestones: [2]}, {level: last, to_full: {choice: [true, false]}, milestones: [3]}]}"
)
TO_FULL = "{level: last, milestones: [3]}"
NULL = "{choice: [{name: none}, {name: swa, lr_factor: {choice: [null, 0.3]}}]}"


@pytest.mark.parametrize(
    ("name", "domain", "labels", "chosen"),
    [
        ("unfreeze.milestones", "{choice: [[], [2], [3]]}", ["[]", "[2]", "[3]"], ["[]", "[2]", "[3]"]),
        (
            "unfreeze",
            "{choice: [{level: last}, {milestones: []}]}",
            ["last", "{milestones: []}"],
            ["last", "{milestones: []}"],
        ),
        (
            "unfreeze",
            SCHEDULES,
            ["{level: last, milestones: [2]}", "{level: last, to_full: {choice: [true, false]}, milestones: [3]}"],
            ["{level: last, milestones: [2]}", f"{TO_FULL}, to_full=false", f"{TO_FULL}, to_full=true"],
        ),
        ("averaging", NULL, ["none", "swa"], ["none", "swa, lr_factor=0.3", "swa, lr_factor=null"]),
        ("batch_size", "{choice: [16, {choice: [32, 64]}]}", ["16", "{choice: [32, 64]}"], ["16", "32", "64"]),
    ],
)
def test_an_option_without_a_name_is_shown_as_its_value_and_not_by_its_place(name, domain, labels, chosen, tmp_path):
    (tmp_path / "made-up.yaml").write_text(SPACE.replace("level: {choice: [last, most, full]}", "level: last"))
    space = load_space(tmp_path / "made-up.yaml", [f"{name}={domain}", "epochs=5"])
    (parameter,) = [one for one in list_parameters(space.recipe) if one.name == name]
    assert [level.label for level in list_levels(parameter) if not level.detail] == labels
    sweep = make_tables(SweepRecord(SweepFolder(tmp_path), [make_header("x", space), *simulate(space).events]))
    drawn = sweep.recipes[3:].to_dict("records")  # after the baselines, which may lie outside
    assert {name_choice(parameter, flat) for flat in drawn} == set(chosen)
    (axis,) = [axis for axis in collect_sweep(sweep).axes if axis.name == name]
    assert axis.options[: len(labels)] == labels


def test_a_searched_number_may_be_a_word_in_a_baseline(tmp_path):
    path = tmp_path / "made-up.yaml"
    path.write_text(SPACE)
    space = load_space(path, ["linear_probe={c: {log_uniform: [0.001, 10.0]}}", "search.scheduler={name: none}"])
    memory = simulate(space)
    for count in (3, 30):  # of the baselines alone, then of all trials
        ends = [place for place, event in enumerate(memory.events) if event.event == "end"]
        events = [make_header("words", space), *memory.events[: ends[count - 1] + 1]]
        sweep = make_tables(SweepRecord(SweepFolder(Path("sweeps", "words")), events))
        assert len(sweep.completed)
        levels = measure_effects(fit_sweep(sweep)).query("parameter == 'linear_probe.c'")
        assert set(levels.verdict) == {NOT_ENOUGH}  # nothing has the baseline's value
    for value in ("auto", "off"):
        trials = sweep.trials.copy()
        trials.loc[trials.trial == sweep.completed.trial.iloc[0], "linear_probe.c"] = value
        assert render_report(find(replace(sweep, trials=trials)))

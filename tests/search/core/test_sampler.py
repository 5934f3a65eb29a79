"""The effect of events on the sampler, seen in the order of the trials for TPE."""

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.core.early_scores import forecast_finals, scores_at_shares
from search.core.sampler import Drawing, Sampler
from spaces.load import load_space
from training.errors import UserError


def suggest(trial: Any) -> dict[str, Any]:
    """A define-by-run space with a conditional search parameter."""
    drawn = {"optimizer": trial.suggest_categorical("optimizer", ["sgd", "adamw"])}
    low, high = (1e-3, 1.0) if drawn["optimizer"] == "sgd" else (1e-5, 1e-2)
    drawn["lr"] = trial.suggest_float(f"optimizer[{drawn['optimizer']}].lr", low, high, log=True)
    drawn["alpha"] = trial.suggest_float("label_smoothing.alpha", 0.0, 0.3)
    return drawn


def point(alpha: float) -> dict[str, Any]:
    return {"optimizer": "sgd", "optimizer[sgd].lr": 0.1, "label_smoothing.alpha": alpha}


def known(sampler: Sampler) -> dict[float, float]:
    """Return the score of each trial by its alpha, the oldest first: NaN if it has none yet, -inf if it is lost."""
    rows, scores = sampler._compare()
    alphas = sampler._points.of(rows, ["label_smoothing.alpha"])[:, 0].tolist()
    return dict(zip(alphas, scores.tolist(), strict=True))


def rank(sampler: Sampler) -> list[float]:
    """Return the alphas of all trials that have a score, best first."""
    scores = {alpha: score for alpha, score in known(sampler).items() if not math.isnan(score)}
    return sorted(scores, key=scores.get, reverse=True)  # type: ignore[arg-type]


def feed(sampler: Sampler, trial: int, alpha: float, scores: dict[float, float], state: str | None) -> None:
    sampler.add(trial, point(alpha))
    for share, score in scores.items():
        sampler.report(trial, share, score)
    if state:
        sampler.tell(trial, state)


@pytest.mark.parametrize("lost", ["diverged", "failed", "out_of_memory", "infeasible"])
def test_a_lost_trial_ranks_below_every_other_in_the_split(lost: str) -> None:
    sampler = Sampler(suggest)
    feed(sampler, 0, 0.0, {0.5: 0.99, 0.9: 0.99}, lost)
    feed(sampler, 1, 0.1, {0.1: -1e9}, "stopped")
    feed(sampler, 2, 0.2, {0.1: 0.1, 1.0: 0.2}, "completed")
    assert rank(sampler) == [0.2, 0.1, 0.0]


def test_a_stopped_trial_that_was_ahead_ranks_above_a_worse_trial_that_was_not_stopped() -> None:
    sampler = Sampler(suggest)
    feed(sampler, 0, 0.0, {1 / 9: 0.2, 1.0: 0.3}, "completed")
    feed(sampler, 1, 0.1, {1 / 9: 0.6, 1.0: 0.8}, "completed")
    feed(sampler, 2, 0.2, {1 / 9: 0.4, 1.0: 0.6}, "completed")
    feed(sampler, 3, 0.3, {1 / 9: 0.5}, "stopped")
    assert rank(sampler) == [0.1, 0.3, 0.2, 0.0]


def test_a_running_trial_counts_as_soon_as_it_can_be_compared() -> None:
    sampler = Sampler(suggest)
    feed(sampler, 0, 0.0, {1 / 9: 0.2, 1.0: 0.3}, "completed")
    feed(sampler, 1, 0.1, {1 / 9: 0.6}, None)
    feed(sampler, 2, 0.2, {}, None)
    assert list(map(math.isnan, known(sampler).values())) == [False, False, True]
    assert rank(sampler)[0] == 0.1


def test_an_interrupted_trial_counts_as_one_that_runs() -> None:
    sampler = Sampler(suggest)
    feed(sampler, 0, 0.0, {0.01: 0.2}, "interrupted")
    feed(sampler, 1, 0.1, {0.5: 0.2}, "interrupted")
    assert known(sampler) == pytest.approx({0.0: math.nan, 0.1: 0.2}, nan_ok=True)


def test_a_lost_trial_is_no_evidence_for_the_forecast_of_others() -> None:
    forecasts = []
    for has_lost in (False, True):
        sampler = Sampler(suggest)
        feed(sampler, 0, 0.0, {1 / 9: 0.2, 2 / 3: 0.3, 1.0: 0.4}, "completed")
        feed(sampler, 1, 0.1, {1 / 9: 0.4, 2 / 3: 0.5, 1.0: 0.6}, "completed")
        feed(sampler, 2, 0.2, {1 / 9: 0.3}, "stopped")
        if has_lost:
            feed(sampler, 3, 0.3, {1 / 9: 0.9, 2 / 3: 0.1}, "diverged")
        forecasts.append(known(sampler)[0.2])
    assert forecasts[0] == forecasts[1] == pytest.approx(0.5, abs=1e-3)


def test_of_two_trials_with_one_point_the_longer_counts() -> None:
    sampler = Sampler(suggest)
    feed(sampler, 0, 0.1, {0.5: 0.2}, "stopped")
    feed(sampler, 1, 0.1, {0.5: 0.2, 1.0: 0.5}, "completed")
    feed(sampler, 2, 0.2, {0.5: 0.1, 1.0: 0.3}, "completed")
    assert known(sampler) == {0.1: 0.5, 0.2: 0.3}
    assert len(sampler._compare()[0]) == 2


def test_a_trial_whose_parameters_are_known_is_added_without_a_draw() -> None:
    drawn = []

    def draw(trial):
        drawn.append(trial)
        return {"a": trial.suggest_categorical("a", ["x", "y"]), "b": trial.suggest_int("b", 2, 2)}

    sampler = Sampler(draw)
    for number, params in enumerate([{"a": "x", "b": 2}, {"a": "y", "b": 2}, {"a": "x", "b": 2}]):
        sampler.add(number, params)
    assert len(drawn) == 1
    assert sampler._points.of(np.arange(3), ["a"]).tolist() == [[0], [1], [0]]
    assert list(sampler._points.axes) == ["a"]


def test_a_parameter_has_the_same_axis_in_each_draw() -> None:
    space, random, known = load_space("full"), np.random.default_rng(0), {}
    for _ in range(100):
        axes = {}
        space.suggest(Drawing(lambda name, axis: axis.draw(random), axes))
        assert {name: axis for name, axis in axes.items() if known.setdefault(name, axis) != axis} == {}
    assert len(known) > 100


def forecast(curves: list[dict[float, float]], ends: list[float]) -> list[float]:
    return forecast_finals(np.array([scores_at_shares(curve) for curve in curves]), np.array(ends)).tolist()


def test_the_forecast_follows_the_trials_that_continued() -> None:
    curves = [{1 / 3: 0.1, 1.0: 0.5}, {1 / 3: 0.2, 1.0: 0.6}, {1 / 3: 0.3, 1.0: 0.7}, {1 / 3: 0.25}, {0.001: 0.9}]
    ends = [0.5, 0.6, 0.7, math.nan, math.nan]
    finals = forecast(curves, ends)
    assert finals == pytest.approx([0.5, 0.6, 0.7, 0.65, math.nan], abs=1e-3, nan_ok=True)
    assert finals[:3] == [0.5, 0.6, 0.7]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12), st.floats(0.01, 100), st.floats(-1e3, 1e3))
def test_the_forecast_is_finite_whatever_the_scores(scores: list[float], scale: float, shift: float) -> None:
    curves = [{1 / 9: s, 1.0: s * scale + shift} if i % 2 else {1 / 9: s} for i, s in enumerate(scores)]
    ends = [curve.get(1.0, math.nan) for curve in curves]
    assert np.isfinite(forecast(curves, ends)).all()


def same(drawn: Any) -> Any:
    return drawn


def test_search_parameters_in_a_branch_are_modelled_jointly_and_only_in_their_branch() -> None:
    late: list[dict[str, Any]] = []
    for seed in range(6):
        sampler = Sampler(suggest, seed=seed)
        for trial in range(40):
            params, drawn = sampler.ask(trial, same) or ({}, {})
            distance = abs(math.log10(drawn["lr"]) + 1) if drawn["optimizer"] == "sgd" else 5.0
            sampler.report(trial, 1.0, -distance - drawn["alpha"])
            sampler.tell(trial, "completed")
            assert set(params) == {"optimizer", f"optimizer[{drawn['optimizer']}].lr", "label_smoothing.alpha"}
            late += [drawn] if trial >= 25 else []
    distances = [abs(math.log10(drawn["lr"]) + 1) for drawn in late if drawn["optimizer"] == "sgd"]
    assert len(distances) > 0.58 * len(late), "random draws have half"
    assert np.mean(distances) < 0.65, "random draws have 0.83"


def test_concurrent_trials_get_different_points() -> None:
    def choose(trial: Any) -> list[int]:
        return [trial.suggest_categorical(name, [0, 1, 2]) for name in "ab"]

    sampler = Sampler(choose, seed=1, startup_trials=0)
    drawn = [tuple(sampler.ask(trial, same)[0].values()) for trial in range(7)]  # type: ignore[index]
    assert len(set(drawn)) == 7


def test_an_infeasible_draw_is_replaced_by_another_point() -> None:
    sampler = Sampler(suggest, name="random")
    first, _ = sampler.ask(0, same)  # type: ignore[misc]
    sampler.tell(0, "infeasible")
    second, _ = sampler.ask(0, same)  # type: ignore[misc]
    assert first != second


def test_a_trial_outside_the_domain_is_not_recorded() -> None:
    sampler = Sampler(suggest)
    sampler.add(0, None)
    sampler.report(0, 0.5, 0.3)
    sampler.tell(0, "completed")
    assert known(sampler) == {}


def test_a_grid_proposes_every_point_once() -> None:
    def choose(trial: Any) -> Any:
        name = trial.suggest_categorical("optimizer", ["sgd", "adamw"])
        return name, trial.suggest_int("sgd.k", 1, 3) if name == "sgd" else None

    sampler = Sampler(choose, name="grid", seed=2)
    drawn = [sampler.ask(trial, same) for trial in range(5)]
    assert sorted(str(d[1]) for d in drawn if d) == ["('adamw', None)", "('sgd', 1)", "('sgd', 2)", "('sgd', 3)"]
    assert drawn[4] is None


def test_a_grid_over_a_continuous_domain_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"optimizer\[sgd\]\.lr is continuous .*choice"):
        Sampler(suggest, name="grid")


@settings(max_examples=25, deadline=None)
@given(st.data(), st.sampled_from(["tpe", "random"]))
def test_a_sampler_rebuilt_from_events_proposes_the_same_next_point(data: st.DataObject, name: Any) -> None:
    live = Sampler(suggest, name=name, seed=5, startup_trials=3)
    events: list[tuple[Any, ...]] = []
    states = st.sampled_from(["completed", "stopped", "diverged", "infeasible", "interrupted", None])
    for trial in range(data.draw(st.integers(0, 8))):
        params, _ = live.ask(trial, same) or ({}, None)
        events.append(("add", trial, params))
        shares = sorted(data.draw(st.sets(st.sampled_from([0.05, 0.1, 0.4, 1.0]), max_size=3)))
        new = [("report", trial, share, data.draw(st.sampled_from([0.1, 0.5]))) for share in shares]
        state = data.draw(states)
        new += [("tell", trial, state)] if state else []
        for method, *arguments in new:
            getattr(live, method)(*arguments)
        events += new
    last = live.ask(99, same)
    rebuilt = Sampler(suggest, name=name, seed=5, startup_trials=3)
    for method, *arguments in events:
        getattr(rebuilt, method)(*arguments)
    assert rebuilt.ask(99, same) == last


def test_an_ask_after_ten_thousand_trials_takes_less_than_a_second() -> None:
    sampler = Sampler(suggest)
    for trial in range(10_000):
        feed(sampler, trial, trial / 40_000, {(1 + trial % 27) / 27: (1 + trial % 27) / 50}, "stopped")
    sampler.ask(10_000, same)
    began = time.process_time()
    sampler.ask(10_001, same)
    assert time.process_time() - began < 1


def test_a_proposal_looks_at_a_bounded_past_with_the_best_and_the_running_trials(monkeypatch) -> None:
    from search.core import sampler as module

    monkeypatch.setattr(module, "PAST", 40)
    sampler = Sampler(suggest)
    for trial in range(200):
        feed(sampler, trial, 0.001 * trial, {1.0: float(trial % 50)}, "completed")
    feed(sampler, 200, 0.25, {}, None)
    good, others, count = sampler._split()
    scores = list(known(sampler).values())
    assert (len(good) + len(others), count) == (40, 200)
    assert [scores[row] for row in good] == [49.0] * 4
    assert 200 in others, "the running trial"
    assert min(others) < 20, "the others are from the whole time"
    assert max(others[:-1]) > 180

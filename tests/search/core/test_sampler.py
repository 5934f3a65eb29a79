"""The effect of events on the sampler, seen in TPE's split into good and bad trials."""

import math
import time
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.samplers._tpe.sampler import _split_trials

from search.core.early_scores import forecast_finals, scores_at_shares
from search.core.sampler import Sampler
from training.errors import UserError

optuna.logging.set_verbosity(optuna.logging.ERROR)


def suggest(trial: Any) -> dict[str, Any]:
    """A define-by-run space with a conditional search parameter."""
    drawn = {"optimizer": trial.suggest_categorical("optimizer", ["sgd", "adamw"])}
    low, high = (1e-3, 1.0) if drawn["optimizer"] == "sgd" else (1e-5, 1e-2)
    drawn["lr"] = trial.suggest_float(f"optimizer[{drawn['optimizer']}].lr", low, high, log=True)
    drawn["alpha"] = trial.suggest_float("label_smoothing.alpha", 0.0, 0.3)
    return drawn


def point(alpha: float) -> dict[str, Any]:
    return {"optimizer": "sgd", "optimizer[sgd].lr": 0.1, "label_smoothing.alpha": alpha}


def rank(sampler: Sampler) -> list[float]:
    """Return the alphas of all finished trials, best first, in the order of TPE's own split."""
    study = sampler._build_study(10_000)
    trials = study.get_trials()
    order: list[float] = []
    for below in range(1, len(trials) + 1):
        good, _ = _split_trials(study, trials, below)
        order += [a for t in good if (a := t.params["label_smoothing.alpha"]) not in order]
    return order


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
    states = {t.params["label_smoothing.alpha"]: t.state.name for t in sampler._build_study(9).get_trials()}
    assert states == {0.0: "COMPLETE", 0.1: "COMPLETE", 0.2: "RUNNING"}
    assert rank(sampler)[0] == 0.1


def test_an_interrupted_trial_is_not_recorded_as_pruned() -> None:
    sampler = Sampler(suggest)
    feed(sampler, 0, 0.0, {0.01: 0.2}, "interrupted")
    feed(sampler, 1, 0.1, {0.5: 0.2}, "interrupted")
    assert [t.state.name for t in sampler._build_study(9).get_trials()] == ["RUNNING", "COMPLETE"]


def test_a_stopped_trial_is_recorded_with_every_value_by_share_of_its_length() -> None:
    sampler = Sampler(suggest)
    feed(sampler, 0, 0.0, {0.05: 0.2, 0.1: 0.3}, "stopped")
    (recorded,) = sampler._build_study(9).get_trials()
    assert recorded.intermediate_values == {50: 0.2, 100: 0.3}


def test_the_forecast_follows_the_trials_that_continued() -> None:
    curves = [{1 / 3: 0.1, 1.0: 0.5}, {1 / 3: 0.2, 1.0: 0.6}, {1 / 3: 0.3, 1.0: 0.7}, {1 / 3: 0.25}, {0.001: 0.9}]
    ends = [0.5, 0.6, 0.7, math.nan, math.nan]
    finals = forecast_finals([scores_at_shares(curve) for curve in curves], ends)
    assert finals[:3] == [0.5, 0.6, 0.7]
    assert finals[3] == pytest.approx(0.65, abs=1e-3)
    assert finals[4] is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12), st.floats(0.01, 100), st.floats(-1e3, 1e3))
def test_the_forecast_is_finite_whatever_the_scores(scores: list[float], scale: float, shift: float) -> None:
    curves = [{1 / 9: s, 1.0: s * scale + shift} if i % 2 else {1 / 9: s} for i, s in enumerate(scores)]
    ends = [curve.get(1.0, math.nan) for curve in curves]
    finals = forecast_finals([scores_at_shares(curve) for curve in curves], ends)
    assert [final for final in finals if not (final is not None and math.isfinite(final))] == []


def test_search_parameters_in_a_branch_are_modelled_jointly_and_only_in_their_branch() -> None:
    sampler = Sampler(suggest, seed=3)
    for trial in range(40):
        params, drawn = sampler.ask(trial) or ({}, {})
        distance = abs(math.log10(drawn["lr"]) + 1) if drawn["optimizer"] == "sgd" else 5.0
        sampler.report(trial, 1.0, -distance - drawn["alpha"])
        sampler.tell(trial, "completed")
        assert set(params) == {"optimizer", f"optimizer[{drawn['optimizer']}].lr", "label_smoothing.alpha"}
    late = [sampler._facts[trial].params for trial in range(25, 40)]
    assert sum(params["optimizer"] == "sgd" for params in late) >= 12


def test_concurrent_trials_get_different_points() -> None:
    def choose(trial: Any) -> list[int]:
        return [trial.suggest_categorical(name, [0, 1, 2]) for name in "ab"]

    sampler = Sampler(choose, seed=1, startup_trials=0)
    drawn = [tuple(sampler.ask(trial)[0].values()) for trial in range(7)]  # type: ignore[index]
    assert len(set(drawn)) == 7


def test_an_infeasible_draw_is_replaced_by_another_point() -> None:
    sampler = Sampler(suggest, name="random")
    first, _ = sampler.ask(0)  # type: ignore[misc]
    sampler.tell(0, "infeasible")
    second, _ = sampler.ask(0)  # type: ignore[misc]
    assert first != second


def test_a_trial_outside_the_domain_is_not_recorded() -> None:
    sampler = Sampler(suggest)
    sampler.add(0, None)
    sampler.report(0, 0.5, 0.3)
    sampler.tell(0, "completed")
    assert sampler._build_study(1).get_trials() == []


def test_a_grid_proposes_every_point_once() -> None:
    def choose(trial: Any) -> Any:
        name = trial.suggest_categorical("optimizer", ["sgd", "adamw"])
        return name, trial.suggest_int("sgd.k", 1, 3) if name == "sgd" else None

    sampler = Sampler(choose, name="grid", seed=2)
    drawn = [sampler.ask(trial) for trial in range(5)]
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
        params, _ = live.ask(trial) or ({}, None)
        events.append(("add", trial, params))
        shares = sorted(data.draw(st.sets(st.sampled_from([0.05, 0.1, 0.4, 1.0]), max_size=3)))
        new = [("report", trial, share, data.draw(st.sampled_from([0.1, 0.5]))) for share in shares]
        state = data.draw(states)
        new += [("tell", trial, state)] if state else []
        for method, *arguments in new:
            getattr(live, method)(*arguments)
        events += new
    last = live.ask(99)
    rebuilt = Sampler(suggest, name=name, seed=5, startup_trials=3)
    for method, *arguments in events:
        getattr(rebuilt, method)(*arguments)
    assert rebuilt.ask(99) == last


def test_an_ask_after_five_hundred_trials_takes_less_than_a_second() -> None:
    sampler = Sampler(suggest)
    for trial in range(500):
        feed(sampler, trial, trial / 2000, {k / 27: k / 50 for k in range(1, 1 + trial % 27)}, "stopped")
    sampler.ask(500)
    began = time.process_time()
    sampler.ask(501)
    assert time.process_time() - began < 1


def test_a_proposal_looks_at_a_bounded_past_with_the_best_and_the_running_trials(monkeypatch) -> None:
    from search.core import sampler as module

    monkeypatch.setattr(module, "PAST", 40)
    sampler = Sampler(suggest)
    for trial in range(200):
        feed(sampler, trial, 0.001 * trial, {1.0: float(trial % 50)}, "completed")
    feed(sampler, 200, 0.25, {}, None)
    seen = sampler._build_study(201).get_trials()
    assert len(seen) == 40
    assert sorted(trial.value for trial in seen if trial.value is not None)[-4:] == [49.0] * 4
    assert sum(trial.value is None for trial in seen) == 1, "the running trial"
    alphas = [trial.params["label_smoothing.alpha"] for trial in seen]
    assert min(alphas) < 0.02, "the others are from the whole time"
    assert max(alphas) > 0.18

"""ASHA's decisions, and that they depend only on the order of events."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.core.asha import SCOUTS, Asha, Decision, _count_places
from spaces.search import AshaScheduler

LENGTH = 64


def run(events: list[tuple[Any, ...]], asha: Asha | None = None) -> list[Decision | None]:
    """Call an Asha with each (method, arguments...), and return its answers."""
    asha = asha or Asha()
    return [getattr(asha, name)(*arguments) for name, *arguments in events]


def arrivals(asha: Asha, scores: list[float], epoch: int, group: str | None = None, first: int = 0) -> list[Decision]:
    for trial in range(first, first + len(scores)):
        asha.start(trial, LENGTH, group)
    return [asha.report(trial, epoch, score) for trial, score in enumerate(scores, first)]


def look(asha: Asha) -> list[tuple[int, float | None]]:
    """Return for each rung the number of trials that reached it, and the score that passes, for the longest trial."""
    by_length = sorted(asha._trials.values(), key=lambda trial: trial.length)
    longest = {rung: trial for trial in by_length for rung in trial.last_rungs}
    seen = []
    for rung, trial in sorted(longest.items()):
        scores = asha._scores.get(rung, [])
        places = max(1, _count_places(len(scores), asha._share(trial, rung)))
        seen.append((len(scores), scores[-places] if scores else None))
    return seen


def test_a_rung_is_at_a_share_of_each_trials_own_length() -> None:
    asha = Asha()
    for trial, length in enumerate([64, 32]):
        asha.start(trial, length)
    for epoch in (1, 2):
        asha.report(0, epoch, 0.9)
    assert [reached for reached, _ in look(asha)] == [1, 0, 0, 0]
    asha.report(1, 1, 0.1)
    assert [reached for reached, _ in look(asha)] == [2, 0, 0, 0]


def test_only_the_best_of_the_trials_that_reached_a_rung_pass() -> None:
    assert arrivals(Asha(), [0.9, 0.1, 0.8, 0.95], epoch=2) == ["continue", "stop", "continue", "continue"]


def test_equal_scores_pass_together() -> None:
    assert set(arrivals(Asha(), [0.5] * 6, epoch=2)) == {Decision.CONTINUE}


def test_trials_of_a_group_that_learns_late_are_compared_with_each_other() -> None:
    alone = Asha()
    arrivals(alone, [0.9] * 6, 2, "last")
    assert arrivals(alone, [0.3, 0.2], 2, "full", first=6) == [Decision.CONTINUE, Decision.STOP]
    assert arrivals(alone, [0.3], 2, "last", first=8) == [Decision.STOP]


def test_rungs_at_the_same_epoch_are_one_harder_rung() -> None:
    # 1/32, 1/16 and 1/8 of 9 epochs all round to the first: one in four passes, not one in two, nor one in eight.
    asha = Asha()
    for trial in range(9):
        asha.start(trial, 9)
    decisions = [asha.report(trial, 1, score) for trial, score in enumerate([1, 2, 3, 4, 5, 6, 7, 6.9, 4.5])]
    assert decisions == [Decision.CONTINUE] * 8 + [Decision.STOP]
    assert look(asha) == [(9, 6)]  # the third best of nine is the last that passes


@pytest.mark.parametrize(("length", "rungs"), [(9, 1), (12, 2), (14, 3), (20, 3), (64, 4)])
def test_the_last_rung_is_left_out_if_it_is_one_epoch_after_another(length: int, rungs: int) -> None:
    asha = Asha()
    asha.start(0, length)
    for epoch in range(1, length + 1):
        asha.report(0, epoch, 0.5)
    assert [reached for reached, _ in look(asha)] == [1] * rungs


def test_a_protected_trial_is_never_stopped() -> None:
    asha = Asha()
    arrivals(asha, [0.9] * 8, epoch=2)
    asha.start(8, LENGTH, protected=True)
    assert asha.report(8, 2, 0.0) is Decision.CONTINUE


def test_a_late_report_counts_only_at_the_rung_of_its_epoch() -> None:
    asha = Asha()
    arrivals(asha, [0.9, 0.8], epoch=2)
    asha.start(2, LENGTH)
    assert asha.report(2, 5, 0.1) is Decision.CONTINUE  # after epochs 2 and 4, whose scores are unknown
    assert [reached for reached, _ in look(asha)] == [2, 0, 0, 0]


def test_an_epoch_reported_twice_counts_once() -> None:
    asha = Asha()
    decisions = arrivals(asha, [0.9, 0.1], epoch=2)
    asha.start(0, LENGTH)
    assert asha.report(0, 2, 0.0) is decisions[0]
    assert asha.report(1, 2, 1.0) is Decision.STOP
    assert look(asha)[0] == (2, 0.9)


def test_copies_of_a_trial_count_once() -> None:
    asha = Asha()
    for trial in (0, 1, 2):
        asha.start(trial, LENGTH, "full", original=0)
        assert asha.report(trial, 2, 0.9) is Decision.CONTINUE
    assert look(asha)[0] == (1, 0.9)
    # Three equal scores above it would leave no place for the second best of three different trials.
    assert arrivals(asha, [0.1, 0.5], epoch=2, first=3) == [Decision.STOP, Decision.CONTINUE]
    for trial in (0, 1, 2):
        asha.end(trial, "stopped")
    assert look(asha)[0][0] == 3
    assert asha._passed_at(0) == (3 - 1 + 1) / (3 + 1)


def test_a_copy_that_came_further_counts_where_the_first_did_not_come() -> None:
    asha = Asha()
    for trial, epochs in ((0, (2,)), (1, (2, 4))):
        asha.start(trial, LENGTH, protected=True, original=0)
        for epoch in epochs:
            asha.report(trial, epoch, 0.5)
    assert [reached for reached, _ in look(asha)] == [1, 1, 0, 0]


def test_a_restart_does_not_undo_a_stop() -> None:
    asha = Asha()
    arrivals(asha, [0.9, 0.1], epoch=2)
    asha.start(1, LENGTH)
    assert asha.report(1, 3, 1.0) is Decision.STOP


@pytest.mark.parametrize(("length", "rungs"), [(1, 0), (2, 1), (27, 3), (81, 4)])
def test_rungs_in_epochs_are_below_a_trials_length(length: int, rungs: int) -> None:
    asha = Asha(AshaScheduler(rungs="epochs", reduction_factor=3))
    asha.start(0, length, protected=True)
    for epoch in range(1, length + 1):
        asha.report(0, epoch, 0.5)
    assert len(look(asha)) == rungs


def train_to_end(asha: Asha, ranks: list[list[int]], first: int = 0) -> None:
    """Train protected trials to their end; `ranks` holds the scores at each rung in turn and at the end."""
    places = [*asha._place_rungs(LENGTH), LENGTH]
    for trial, scores in enumerate(zip(*ranks, strict=True), first):
        asha.start(trial, LENGTH, protected=True)
        for epoch, score in zip(places, scores, strict=True):
            asha.report(trial, epoch, score)
        asha.end(trial, "completed")


def decide_at_rungs(asha: Asha, trial: int, score: float) -> list[Decision]:
    """Return the decisions about a trial that has the same score at each rung."""
    asha.start(trial, LENGTH)
    return [asha.report(trial, epoch, score) for epoch in asha._place_rungs(LENGTH)]


MIXED = [7, 2, 12, 9, 4, 15, 1, 10, 6, 14, 3, 11, 8, 16, 5, 13]


@pytest.mark.parametrize("adapt", [True, False])
def test_more_trials_pass_where_the_last_rung_does_not_predict_the_final_score(adapt: bool) -> None:
    asha = Asha(AshaScheduler(adapt=adapt))
    rising = list(range(16))
    train_to_end(asha, [rising, MIXED, rising, MIXED, [-rank for rank in MIXED]])  # the rungs mislead
    assert decide_at_rungs(asha, 16, 6.5)[0] is (Decision.CONTINUE if adapt else Decision.STOP)


@pytest.mark.parametrize("adapt", [True, False])
def test_trials_stop_earlier_where_each_rung_repeats_the_one_before(adapt: bool) -> None:
    asha = Asha(AshaScheduler(adapt=adapt))
    train_to_end(asha, [list(range(32))] * 5)
    first, *_ = decide_at_rungs(asha, 32, 24.5)  # in the best quarter
    assert first is (Decision.STOP if adapt else Decision.CONTINUE)


def test_a_correlation_counts_as_a_stronger_one_if_only_the_best_trials_have_both_scores() -> None:
    needed = []
    for state in ("stopped", "failed"):
        asha = Asha()
        ends = [score + 8 * (place % 2) for place, score in enumerate(MIXED[::-1])]
        train_to_end(asha, [MIXED, MIXED[::-1], MIXED, MIXED[::-1], ends])
        for trial in range(16, 80):
            decide_at_rungs(asha, trial, -trial)
            asha.end(trial, state)
        needed.append(look(asha)[-1][1])
    assert needed == [8, 7]  # of the 16 scores at the last rung, the best 9 pass, or the best 10


def test_trials_that_agree_with_what_is_expected_leave_the_rule_as_it_is() -> None:
    rungs = []
    for adapt in (True, False):
        asha = Asha(AshaScheduler(adapt=adapt))
        train_to_end(asha, [MIXED, MIXED[::-1], MIXED, MIXED, MIXED])
        rungs.append(look(asha))
    assert rungs[0] == rungs[1]


@pytest.mark.parametrize(
    ("rule", "trial", "epoch", "decision"),
    [
        ({}, SCOUTS, 3, Decision.STOP),
        ({}, SCOUTS, LENGTH // 2, Decision.STOP),
        ({}, SCOUTS, LENGTH // 2 + 1, Decision.CONTINUE),  # most of its cost is paid
        ({}, SCOUTS - 1, 3, Decision.CONTINUE),  # it shows what early scores predict
        ({"adapt": False}, SCOUTS, 3, Decision.CONTINUE),
    ],
)
def test_a_trial_that_passed_a_rung_before_others_came_is_compared_again(
    rule: dict[str, Any], trial: int, epoch: int, decision: Decision
) -> None:
    asha = Asha(AshaScheduler(**rule))
    for other in range(SCOUTS + 1):
        asha.start(other, LENGTH, protected=other != trial)
    asha.report(0, 2, 0.1)
    assert asha.report(trial, 2, 0.5) is Decision.CONTINUE
    arrivals(asha, [0.9] * 4, 2, first=SCOUTS + 1)
    assert asha.report(trial, epoch, 0.6) is decision


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Generate any order of trials of any length, with restarts, repeated epochs and gaps."""
    lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    groups = [draw(st.sampled_from([None, "last", "full"])) for _ in lengths]
    at = [0] * len(lengths)
    events: list[tuple[Any, ...]] = []
    for trial in draw(st.lists(st.integers(0, len(lengths) - 1), max_size=60)):
        if at[trial] == 0 or draw(st.integers(0, 5)) == 0:
            events.append(("start", trial, lengths[trial], groups[trial], trial == 0))
        at[trial] = max(1, at[trial] + draw(st.sampled_from([1, 1, 1, 1, 2, 0, -1])))
        score = draw(st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5, 0.5]))
        if at[trial] <= lengths[trial]:
            events.append(("report", trial, at[trial], score))
        if draw(st.integers(0, 9)) == 0:
            events.append(("end", trial, draw(st.sampled_from(["completed", "stopped", "interrupted", "failed"]))))
    return events


ASHAS = st.sampled_from(
    [
        {},
        {"adapt": False},
        {"rungs": "epochs", "reduction_factor": 3},
        {"min_epochs": 2, "reduction_factor": 4},
    ]
)


@settings(max_examples=150, deadline=None)
@given(histories(), ASHAS, st.data())
def test_replaying_events_that_were_cut_anywhere_changes_no_later_decision(
    events: list[tuple[Any, ...]], rule: dict[str, Any], data: st.DataObject
) -> None:
    whole = Asha(AshaScheduler(**rule))
    answers = run(events, whole)
    cut = data.draw(st.integers(0, len(events)))
    again = Asha(AshaScheduler(**rule))
    assert run(events[:cut], again) == answers[:cut]
    # After a restart of the driver every running trial is started again: that changes nothing either.
    run([event for event in events[:cut] if event[0] == "start"], again)
    assert run(events[cut:], again) == answers[cut:]
    assert look(again) == look(whole)


@settings(max_examples=100, deadline=None)
@given(histories(), ASHAS)
def test_the_protected_trial_never_stops(events: list[tuple[Any, ...]], rule: dict[str, Any]) -> None:
    for event, answer in zip(events, run(events, Asha(AshaScheduler(**rule))), strict=True):
        assert answer is Decision.CONTINUE or event[:2] != ("report", 0)

"""The last lines of a sweep: the lead, the effects of the best trial's choices, and the next command."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from ledger.events import Replication, ReplicationTrial
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from search.display.results import report_sweep
from search.display.tables.leaderboard import describe_finding
from spaces.load import load_space
from tests.analysis.made_up import SPACE, make_header, simulate
from training.errors import UserError


@pytest.fixture(scope="module")
def record(tmp_path_factory) -> SweepRecord:
    """A sweep in which label smoothing is worth 6 points and MixUp costs 5."""
    path = tmp_path_factory.mktemp("finding") / "made-up.yaml"
    path.write_text(SPACE)
    space = load_space(path)
    return SweepRecord(SweepFolder(Path("sweeps", "made-up")), [make_header("made-up", space), *simulate(space).events])


def test_the_finding_is_the_lead_and_the_effects_of_the_choices(record):
    lead, *_, choices = describe_finding(record)
    assert lead.startswith(f"The best, {record.trials.best().name}, is probably ")
    start, _, listed = choices.partition(": ")
    completed = sum(trial.state == "completed" for trial in record.trials)
    assert start == f"Effects of its choices, with 90 % intervals from {completed} full trainings"
    first, *others = listed.rstrip(".").split(" · ")
    assert first.startswith("label_smoothing=alpha 0.01 to 0.3 +")
    assert len(others) <= 2
    assert "mixup" not in listed


def test_a_ledger_whose_space_was_replaced_by_one_without_parameters_has_a_finding_too(record):
    header = record.header.model_copy(update={"space": "format: 1\nrecipe: {epochs: 9}\n"})
    lead, *_ = describe_finding(SweepRecord(record.folder, [header, *record.events[1:]]))
    assert lead.startswith(f"It is open whether the best, {record.trials.best().name}, is better")


def test_a_sweep_without_completed_trials_has_one_sentence(record):
    empty = SweepRecord(record.folder, [record.header])
    started = SweepRecord(record.folder, [record.header, *record.events[1:3]])
    assert describe_finding(empty) == ["No trial has started yet."]
    assert describe_finding(started) == ["No trial completed, so none can be called the best."]


@pytest.mark.parametrize("kind", ["confirm", "ablate"])
def test_a_replication_refers_to_the_command_that_has_its_finding(record, kind):
    listed = [ReplicationTrial(label="0", recipe=trial.recipe, origin=trial.origin) for trial in record.trials]
    made = Replication(kind=kind, of="first", seeds=(1, 2), trials=listed)
    replicated = SweepRecord(record.folder, [record.header, made, *record.events[1:]])
    assert describe_finding(replicated) == [
        f"This sweep is a replication of first. See its finding with: sweep {kind} first"
    ]
    with pytest.raises(UserError, match=rf"a replication of first\. Its own page: sweep {kind} first"):
        report_sweep(replicated, Path("report.html"), Console())

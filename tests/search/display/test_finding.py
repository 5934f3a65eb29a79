"""The last lines of a sweep: the lead, the effects of the best trial's choices, and the next command."""

from __future__ import annotations

from pathlib import Path

import pytest

from search.core.record import SweepRecord
from search.display.finding import describe_finding
from search.storage.events import RunsRecorded, SweepStarted
from search.storage.folder import SweepFolder
from search.storage.settings import Settings
from search.tracking import writer
from spaces.load import load_space
from tests.analysis.made_up import EXPERIMENT, SPACE, send, simulate


def make_record(uri, tmp_path, seed=0) -> SweepRecord:
    (tmp_path / "made-up.yaml").write_text(SPACE)
    space = load_space(tmp_path / "made-up.yaml")
    settings = Settings(tracking_uri=uri, experiment=EXPERIMENT)
    header = SweepStarted(name="made-up", id="made-up", space=space.to_yaml(), settings=settings)
    return SweepRecord(SweepFolder(Path("sweeps") / "made-up"), [header, *simulate(space, seed).events])


@pytest.fixture(scope="module")
def record(tmp_path_factory) -> SweepRecord:
    """A sweep in which label smoothing is worth 6 points and MixUp costs 5; MLflow has it too."""
    home = tmp_path_factory.mktemp("finding")
    found = make_record(f"sqlite:///{home}/mlflow.db", home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "FLUSH_SECONDS", 0.02)
        send(found.settings.tracking_uri, "made-up", found.space, found.events[1:])
    return SweepRecord(found.folder, [*found.events, RunsRecorded(ids={}, undelivered=0)])


def test_the_lead_the_effects_and_the_next_command_are_the_last_lines(record):
    lead, choices, following = describe_finding(record, record.trials.best())
    assert lead.startswith(f"The best, {record.trials.best().name}, is better than the best baseline, ")
    start, _, listed = choices.partition(": ")
    assert start == "Effects of its choices, with 90 % intervals from 10 full trainings"
    first, *others = listed.rstrip(".").split(" · ")
    assert first.startswith("label_smoothing=alpha 0.01 to 0.3 +")
    assert len(others) <= 2
    assert "mixup" not in listed
    assert following == (
        "Next: sweep report made-up shows all effects; sweep confirm made-up adds fresh seeds, then the test part."
    )


def test_events_that_mlflow_does_not_have_leave_the_effects_out(record):
    late = SweepRecord(record.folder, [*record.events, RunsRecorded(ids={}, undelivered=3)])
    assert len(describe_finding(late, late.trials.best())) == 2


def test_without_mlflow_the_lead_and_the_next_command_remain(tmp_path):
    record = make_record(f"sqlite:///{tmp_path}/none.db", tmp_path)
    lead, following = describe_finding(record, record.trials.best())
    assert "is better than the best baseline" in lead
    assert following.startswith("Next: ")

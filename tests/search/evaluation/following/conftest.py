"""A sweep on disk whose ledger grows by hand, as its driver would write it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from ledger.events import AnyEvent, DriverStarted
from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.settings import Settings
from search.runner.sweep import create_folder, make_header
from spaces.load import load_space
from tests.analysis.made_up import SPACE, START, simulate

DRIVER = DriverStarted(time=START, pid=1, host="far-away", threads=2, slots=1, gpus=0.5)


@pytest.fixture(scope="session")
def space(tmp_path_factory):
    path = tmp_path_factory.mktemp("growing-space") / "made-up.yaml"
    path.write_text(SPACE)
    return load_space(path)


@pytest.fixture(scope="session")
def events(space) -> list[AnyEvent]:
    """The events of a whole sweep after its header."""
    return [DRIVER, *simulate(space).events]


@pytest.fixture
def make_sweep(tmp_path, space) -> Callable[..., SweepFolder]:
    def make(events: Sequence[AnyEvent] = (), name: str = "mine") -> SweepFolder:
        folder = SweepFolder(tmp_path / "sweeps" / name)
        create_folder(folder, make_header(name, name, space, Settings()), *events)
        return folder

    return make


def append(folder: SweepFolder, events: Sequence[AnyEvent]) -> None:
    ledger = Ledger(folder.ledger, [])
    for event in events:
        ledger.append(event)
    ledger.close()

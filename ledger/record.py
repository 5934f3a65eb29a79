"""A sweep as its folder describes it: the ledger is read once, and everything else is derived from its events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

from ledger.events import (
    AnyEvent,
    DataMoved,
    DriverStarted,
    Event,
    Extension,
    Replication,
    RunsRecorded,
    SettingsChanged,
    SweepClosed,
    SweepStarted,
    TestOpened,
    TestScored,
    TrialAdded,
    TrialStarted,
)
from ledger.file import Ledger, find_header, read_events
from ledger.folder import SweepFolder, describe_loss
from ledger.settings import Settings
from ledger.trials import UNFINISHED, Trial, Trials
from spaces.load import parse_recorded_space
from spaces.space import Space
from training.errors import UserError

Kind = TypeVar("Kind", bound=Event)


class SweepRecord:
    """The content of a sweep's ledger. It does not change while a driver writes: open it again to see new events."""

    def __init__(self, folder: SweepFolder, events: Sequence[AnyEvent]) -> None:
        self.folder = folder
        self.events = list(events)
        self.missing: set[str] = set()  # parts of plugins that are not loaded

    @classmethod
    def open(cls, folder: SweepFolder, *, only_shown: bool = False) -> SweepRecord:
        """Read a sweep's ledger. If it is `only_shown`, parts of plugins that are not loaded are read by placeholders."""
        if not folder.ledger.is_file():
            raise UserError(describe_loss(folder))
        record = cls(folder, [])
        record.events = list(read_events(folder.ledger, folder.is_copy, record.missing))
        if not only_shown:
            record.refuse_missing()
        starts = record._list(TrialStarted)
        if (listed := record.replication) and any(start.trial >= len(listed.trials) for start in starts):
            raise UserError(
                f"{folder.ledger}: it has trials that are not in its list; the file is damaged. Remove the sweep with "
                f"sweep rm {folder.called}, and run sweep {listed.kind} {listed.of} again."
            )
        return record

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def called(self) -> str:
        return self.folder.called

    def _list(self, event_class: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, event_class)]

    @cached_property
    def header(self) -> SweepStarted:
        """The event that describes the sweep."""
        return find_header(self.folder.ledger, self.events, self.folder.is_copy)

    @property
    def recorded_settings(self) -> Settings:
        """The settings of the last driver, with a masked password."""
        changes = self._list(SettingsChanged)
        return changes[-1].settings if changes else self.header.settings

    @cached_property
    def settings(self) -> Settings:
        """The settings of the last driver."""
        return self.recorded_settings.completed()

    @cached_property
    def space(self) -> Space:
        """The space at the start of the sweep, with its images where they are now."""
        space = parse_recorded_space(self.header.space, str(self.folder.space), self.name)
        for event in self._list(DataMoved):
            data = space.recipe["data"]
            assert isinstance(data, dict)  # it is never searched
            space = replace(space, recipe={**space.recipe, "data": {**data, **event.places}})
        return space

    @cached_property
    def trials(self) -> Trials:
        """The trials. Without a driver none is running, even if a killed driver did not record their end."""
        trials = Trials(self.space.search.metric, self.events)
        if any(trial.state == "running" for trial in trials) and not self.folder.is_running():
            for trial in trials:
                trial.state = "interrupted" if trial.state == "running" else trial.state
        return trials

    @property
    def budget(self) -> int:
        """Number of trials to run, with extensions."""
        return self.space.search.trials + self.trials.extra

    @property
    def is_done(self) -> bool:
        """Whether no trial is left to run: the budget is used up, or the last driver used up the grid."""
        closes = self._list(SweepClosed)
        is_used_up = bool(closes) and closes[-1].state == "completed" and not self.added_since
        ended = not any(trial.state in UNFINISHED for trial in self.trials)
        return ended and (is_used_up or len(self.trials) >= self.budget)

    @property
    def _since_close(self) -> list[AnyEvent]:
        closes = self._list(SweepClosed)
        return self.events[self.events.index(closes[-1]) :] if closes else []

    @property
    def added_since(self) -> int:
        """Number of trials that were added since the last driver closed the ledger."""
        added = [event for event in self._since_close if isinstance(event, Extension | TrialAdded)]
        return sum(event.trials if isinstance(event, Extension) else 1 for event in added)

    @property
    def state(self) -> str:
        """`running`, `completed`, or the state in which the last driver left it."""
        if self.folder.is_running():
            return "running"
        if self.is_done:
            return "completed"
        closes = self._list(SweepClosed)
        last = closes[-1].state if closes else "interrupted"
        # Trials that were added after its end wait, until a driver starts again.
        has_begun_again = any(isinstance(event, DriverStarted) for event in self._since_close)
        return "interrupted" if last == "completed" and has_begun_again else last

    @property
    def replication(self) -> Replication | None:
        """The recipes and seeds of a confirmation or an ablation; None for a search."""
        return next(iter(self._list(Replication)), None)

    @property
    def test(self) -> TestScored | None:
        """The score on the test split, if there is one."""
        return next(iter(self._list(TestScored)), None)

    @property
    def test_openings(self) -> int:
        """How often the test split was used for this sweep."""
        return len(self._list(TestOpened))

    @property
    def driver(self) -> DriverStarted:
        """The last driver; one that is made up, where none has started."""
        return [DriverStarted(threads=1), *self._list(DriverStarted)][-1]

    @property
    def run_ids(self) -> dict[int, str]:
        """MLflow's run id by trial number."""
        return {int(number): run for event in self._list(RunsRecorded) for number, run in event.ids.items()}

    @property
    def is_delivered(self) -> bool:
        """Whether MLflow has every event of the trials."""
        last = next((event for event in reversed(self.events) if event.event in ("end", "runs")), None)
        return isinstance(last, RunsRecorded) and not last.undelivered

    @property
    def without_plugins(self) -> str:
        """A sentence about parts of plugins that are not loaded; empty if there are none."""
        if not self.missing:
            return ""
        return (
            f"This sweep has the {', '.join(sorted(self.missing))}, of a plugin that is not loaded, and shows it as it was "
            "recorded. To train or export, give its file with --plugin FILE, or install its package."
        )

    def find_trial(self, text: str, option: str = "") -> Trial:
        """Return the trial that the user named, such as `0007` or `7`. A refusal begins with the `option` that named it."""
        trials = self.trials.by_number
        if text.isascii() and text.isdecimal() and len(text) < 20 and int(text) in trials:
            return trials[int(text)]
        last = f"0000 to {max(trials):04d}" if trials else "none"
        raise UserError(f"{option}{text[:100] or repr(text)}: {self.name} has no such trial. It has {last}.")

    def refuse_missing(self) -> None:
        """Refuse what trains or builds a model, where parts were read by placeholders."""
        if self.missing:
            raise UserError(
                f"{self.name}: this sweep has the {', '.join(sorted(self.missing))}, of a plugin that is not loaded: give its "
                "file with --plugin FILE, or install its package."
            )

    def append(self, event: AnyEvent) -> None:
        """Write one event to the ledger."""
        with self.folder.locked():
            ledger = Ledger(self.folder.ledger, self.events)
            ledger.append(event)
            ledger.close()
            self.events = ledger.events

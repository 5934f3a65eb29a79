"""The events of a sweep: one frozen type for each kind of ledger line, and the codec between the two."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from search.storage.settings import Settings
from spaces.parameters.draws import Params
from training.recipe import RECORDED, Recipe

State = Literal["running", "paused", "completed", "stopped", "diverged", "out_of_memory", "failed", "interrupted"]
EndState = Literal["paused", "completed", "stopped", "diverged", "out_of_memory", "failed", "interrupted"]
SweepState = Literal["completed", "interrupted", "time_budget"]
Origin = Literal["baseline", "sampler", "warm_start", "listed", "single"]
ReplicationKind = Literal["confirm", "ablate"]
Dataset = Mapping[str, bool | int | float | str | None]  # name, digest and sizes of the data
StepPoint = tuple[int, float, float]  # optimizer steps done, learning rate, training loss


class Event(BaseModel):
    """What every event has. Fields that a later version adds are ignored when an earlier version reads them."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    time: float = Field(default_factory=time.time, description="Seconds since 1970, UTC.")


class TrialEvent(Event):
    """An event of one trial."""

    trial: int = Field(description="Number of the trial.")


class SweepStarted(Event):
    """First event of every sweep, directly after the line that names the format."""

    event: Literal["sweep"] = "sweep"
    name: str = Field("", description="Name of the sweep, as of its folder.")
    id: str = Field(description="Random id; MLflow's runs carry it as the tag sweep_id.")
    space: str = Field("", description="The resolved space as YAML, as in space.yaml.")
    settings: Settings = Field(description="How the sweep runs.")
    dataset: Dataset | None = Field(None, description="Name, digest and sizes of the data.")


class WarmStart(Event):
    """Recipes of earlier sweeps, to be tried first after the baselines."""

    event: Literal["warm_start"] = "warm_start"
    recipes: tuple[Recipe, ...] = Field(description="Complete recipes, best first.")


class ReplicationTrial(BaseModel):
    """One training of a replication."""

    model_config = ConfigDict(frozen=True)

    label: str = Field(description="Number of the trial that the recipe comes from, or a name such as baseline.")
    recipe: Recipe
    origin: Origin


class Replication(Event):
    """All trials of a confirmation or an ablation: some recipes, each trained on the same fresh seeds."""

    event: Literal["list"] = "list"
    kind: ReplicationKind = Field("confirm", description="The command that asked for it.")
    of: str = Field("", description="The sweep whose recipes these are.")
    seeds: tuple[int, ...] = Field((), description="Seeds that every recipe is trained on.")
    notes: tuple[str, ...] = Field((), description="What was left out, and why.")
    trials: tuple[ReplicationTrial, ...] = Field(description="In the order in which they run.")


class Extension(Event):
    """More trials were granted: `sweep extend`."""

    event: Literal["extend"] = "extend"
    trials: int = Field(description="How many more.")


class DriverStarted(Event):
    """A driver took the sweep over: at its start, and at each resume."""

    event: Literal["driver"] = "driver"
    pid: int = Field(0, description="Process of the driver.")
    host: str = Field("", description="Its machine.")
    threads: int = Field(description="CPU threads of each trial.")
    slots: int = Field(0, description="Trials that run at the same time.")
    gpus: float = Field(0.0, description="GPUs of each trial.")
    seconds: dict[str, float] = Field({}, description="Time that each phase of the start took.")


class TrialStarted(TrialEvent):
    """A recipe was drawn, and its trial begins."""

    event: Literal["start"] = "start"
    recipe: Recipe = Field(description="The complete recipe.")
    params: Params | None = Field(description="The draw as Optuna's parameters; null outside the space.")
    origin: Origin


class EpochReported(TrialEvent):
    """A trial finished an epoch."""

    event: Literal["report"] = "report"
    epoch: int = Field(description="Epochs done, from 1.")
    score: float = Field(description="Best value so far of the metric that the search ranks by.")
    standard_error: float = Field(description="Standard error of the score, from the validation images.")
    best_epoch: int = Field(description="The epoch that the score comes from.")
    metrics: dict[str, float | None] = Field({}, description="All metrics of the epoch, by name.")
    steps: tuple[StepPoint, ...] = Field((), description="Points of [step, learning rate, training loss].")
    worker_seconds: float | None = Field(None, description="Time since the worker began or resumed the trial.")

    def measured(self) -> dict[str, float]:
        """The metrics that this machine could measure."""
        return {name: value for name, value in self.metrics.items() if value is not None}


class TrialResumed(TrialEvent):
    """A paused or interrupted trial goes on from its last checkpoint."""

    event: Literal["resume"] = "resume"


class TrialLost(TrialEvent):
    """The worker of a trial died; the trial goes on elsewhere."""

    event: Literal["lost"] = "lost"
    reason: str = Field(description="Why, as far as Ray can tell.")


class TrialEnded(TrialEvent):
    """A trial left its worker, for good or until a resume."""

    event: Literal["end"] = "end"
    state: EndState = Field(description="The state that it is in from now on.")
    reason: str = Field("", description="Why, where the state does not say it.")


class DrawRefused(TrialEvent):
    """A draw whose techniques cannot be combined; another is drawn for the same trial."""

    event: Literal["infeasible"] = "infeasible"
    params: Params = Field(description="The draw as Optuna's parameters.")
    reason: str = Field(description="Which techniques conflict.")


class SweepClosed(Event):
    """A driver left the sweep in an orderly way."""

    event: Literal["close"] = "close"
    state: SweepState = Field(description="How the driver left the sweep.")


class RunsRecorded(Event):
    """MLflow's run of each trial, and how many events did not reach MLflow."""

    event: Literal["runs"] = "runs"
    ids: dict[str, str] = Field({}, description="Run id by trial number.")
    undelivered: int = Field(0, description="Events that did not reach MLflow.")


class TestOpened(Event):
    """The test part was opened for a recipe of this sweep, by a confirmation."""

    __test__: ClassVar[bool] = False  # not a test class for pytest
    event: Literal["test_opened"] = "test_opened"
    by: str = Field(description="The confirmation's name.")


class TestScored(TrialEvent):
    """The test part's one score: of a confirmation's winner."""

    __test__: ClassVar[bool] = False
    event: Literal["test"] = "test"
    openings_before: int = Field(description="How often the test part had been opened for the searched sweep.")
    classes: tuple[str, ...] = Field(description="Names of the classes, in the order of the labels.")
    results: dict[str, Any] = Field(description="Accuracy, confusion, calibration and worst errors.")


AnyEvent = Annotated[
    SweepStarted | WarmStart | Replication | Extension | DriverStarted | TrialStarted | EpochReported | TrialResumed
    | TrialLost | TrialEnded | DrawRefused | SweepClosed | RunsRecorded | TestOpened | TestScored,
    Field(discriminator="event"),
]  # fmt: skip
_CODEC: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)


def decode(line: bytes) -> AnyEvent:
    """Read one line of a ledger.

    Raises:
        ValueError: the line is not JSON, or not an event of a known kind with its fields.
    """
    return _CODEC.validate_json(line, context=RECORDED)


def make_event(values: Mapping[str, Any]) -> AnyEvent:
    """Build an event from plain values, of which `event` names the kind.

    Raises:
        ValueError: the values are not those of a known kind.
    """
    return decode(json.dumps(dict(values)).encode())


def encode(event: AnyEvent) -> bytes:
    """Write an event as one line of a ledger, the newline included."""
    return event.model_dump_json().encode() + b"\n"

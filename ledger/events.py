"""The events of a sweep: one frozen type for each kind of ledger line, and the codec between the two."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic_core import PydanticSerializationError

from ledger.names import PATTERN
from ledger.settings import Settings
from spaces.parameters.draws import Params
from training.contract.part import MOST
from training.errors import UserError
from training.recipe import RECORDED, AnyRecipe, Recipe

State = Literal["running", "completed", "stopped", "diverged", "out_of_memory", "failed", "interrupted"]
EndState = Literal["completed", "stopped", "diverged", "out_of_memory", "failed", "interrupted"]
SweepState = Literal["completed", "interrupted", "time_budget"]
Origin = Literal["probe", "baseline", "sampler", "warm_start", "added", "listed", "single"]
LossCause = Literal["worker", "preemption", "share"]
ReplicationKind = Literal["confirm", "ablate"]
Dataset = Mapping[str, bool | int | float | str | None]  # name, digest and sizes of the data
LAST_TIME = 253_402_300_799  # the end of the year 9999, the last that Python can show
StepPoint = tuple[int, float, float]  # optimizer steps done, learning rate, training loss
Label = Annotated[int, Field(ge=0, le=MOST)]
HEX = "^([0-9a-f]{2})*$"


class Event(BaseModel):
    """The base of all events. An earlier version ignores the fields that a later version adds."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    time: float = Field(default_factory=time.time, ge=0, le=LAST_TIME, description="Seconds since 1970, UTC.")


class TrialEvent(Event):
    """An event of one trial."""

    trial: int = Field(ge=0, le=MOST, description="Number of the trial.")


class SweepStarted(Event):
    """The first event of every sweep, directly after the line that names the format."""

    event: Literal["sweep"] = "sweep"
    name: str = Field("", description="Name of the sweep and of its folder.")
    id: str = Field(description="Random id; the runs in MLflow have it as the tag sweep_id.")
    space: str = Field("", description="The resolved space as YAML, as in space.yaml.")
    settings: Settings = Field(description="Settings of the sweep, such as its seed and its MLflow store.")
    dataset: Dataset | None = Field(None, description="Name, digest and sizes of the data.")


class WarmStart(Event):
    """Recipes of earlier sweeps; they run directly after the baselines."""

    event: Literal["warm_start"] = "warm_start"
    recipes: tuple[AnyRecipe, ...] = Field(description="Complete recipes, best first.")


class ReplicationTrial(BaseModel):
    """One training of a replication."""

    model_config = ConfigDict(frozen=True)

    label: str = Field(description="Number of the trial that the recipe comes from, or a name such as baseline.")
    recipe: AnyRecipe
    origin: Origin


class Replication(Event):
    """All trials of a confirmation or an ablation: some recipes, each trained on the same fresh seeds."""

    event: Literal["list"] = "list"
    kind: ReplicationKind = Field("confirm", description="The command that started it.")
    of: str = Field("", pattern=rf"^({PATTERN.pattern})?$", description="The sweep that the recipes come from.")
    of_id: str = Field("", description="Its random id; empty before this field was there.")
    seeds: tuple[int, ...] = Field((), description="Every recipe is trained on each of these seeds.")
    notes: tuple[str, ...] = Field((), description="Sentences about what was left out, and why.")
    trials: tuple[ReplicationTrial, ...] = Field(description="All trials, in the order in which they run.")


class Extension(Event):
    """`sweep resume --trials` added trials to the budget."""

    event: Literal["extend"] = "extend"
    trials: int = Field(description="Number of additional trials.")


class TrialAdded(Event):
    """`sweep add` gave the sweep one more recipe; it is trained as one more trial."""

    event: Literal["add"] = "add"
    request: str = Field(description="Random id, so that a request counts once.")
    recipe: AnyRecipe = Field(description="The complete recipe.")
    full: bool = Field(False, description="The trial runs to its end: ASHA does not stop it.")


class StopRequested(Event):
    """`sweep stop --trial` asked to end a trial; it ends after its current epoch."""

    event: Literal["stop_trial"] = "stop_trial"
    request: str = Field(description="Random id, so that a request counts once.")
    trial: int = Field(description="Number of the trial.")


AnyRequest = TrialAdded | StopRequested
REQUESTS = (TrialAdded, StopRequested)


class DataMoved(Event):
    """A user named the new place of the images. They are the same images, so each recipe of the ledger has it from now on."""

    event: Literal["move"] = "move"
    places: dict[str, str] = Field(description="The new values of `root` and `path` of the data.")

    def apply(self, recipe: Recipe) -> Recipe:
        """Return a recipe with its data at the new place."""
        return recipe.model_copy(update={"data": recipe.data.model_copy(update=self.places)})


class SettingsChanged(Event):
    """`sweep resume` changed settings, such as the cluster or the MLflow store."""

    event: Literal["settings"] = "settings"
    settings: Settings = Field(description="All settings from now on.")


class DriverStarted(Event):
    """A driver began to run the sweep: at its start, and at each resume."""

    event: Literal["driver"] = "driver"
    pid: int = Field(0, description="Process id of the driver.")
    host: str = Field("", description="Machine of the driver.")
    threads: int = Field(description="CPU threads of each trial.")
    slots: int = Field(0, description="Number of trials that run at the same time.")
    gpus: float = Field(0.0, description="GPUs of each trial.")
    seconds: dict[str, float] = Field({}, description="Time that each phase of the start took.")
    plugins: tuple[str, ...] | None = Field(
        None, description="Version and hash of each plugin that the driver has; null if that is not known."
    )


class FeaturesProbed(Event):
    """The scores of frozen features, in a ledger from before the linear probe was a trial; they are kept, and not used."""

    model_config = ConfigDict(extra="allow")
    event: Literal["probe"] = "probe"


class TrialStarted(TrialEvent):
    """A trial begins with this recipe."""

    event: Literal["start"] = "start"
    recipe: AnyRecipe = Field(description="The complete recipe.")
    params: Params | None = Field(description="The draw as Optuna's parameters; null outside the space.")
    origin: Origin


class EpochReported(TrialEvent):
    """A trial finished an epoch."""

    event: Literal["report"] = "report"
    epoch: int = Field(ge=1, le=MOST, description="Epochs done, from 1.")
    score: float = Field(description="Value of the search's metric in the kept epoch: the best so far, or the last.")
    standard_error: float = Field(description="Standard error of the score, from the validation images.")
    best_epoch: int = Field(description="The epoch that the score comes from.")
    metrics: dict[str, float | None] = Field({}, description="All metrics of the epoch, by name.")
    steps: tuple[StepPoint, ...] = Field((), description="Points of [step, learning rate, training loss].")
    labels: tuple[Label, ...] = Field((), description="Classes of the validation images, in the last report alone.")
    probabilities: str = Field("", pattern=HEX, description="Of each class for each of these: a byte, as two digits.")
    worker_seconds: float | None = Field(None, description="Time since the worker began or resumed the trial.")
    host: str = Field("", description="Machine of the worker; empty before this field was there.")


class TrialResumed(TrialEvent):
    """An interrupted trial continues from its last checkpoint."""

    event: Literal["resume"] = "resume"


class TrialLost(TrialEvent):
    """The worker of a trial died; the trial continues on another worker."""

    event: Literal["lost"] = "lost"
    reason: str = Field(description="The reason that Ray gives.")
    cause: LossCause = Field(
        "worker", description="worker: it died; preemption: its node left; share: others got its room."
    )


class TrialEnded(TrialEvent):
    """A trial left its worker, for good or until a resume."""

    event: Literal["end"] = "end"
    state: EndState = Field(description="The new state of the trial.")
    reason: str = Field("", description="The reason, if the state alone does not explain it.")


class DrawRefused(TrialEvent):
    """A draw with techniques that cannot be combined; another one is drawn for the same trial."""

    event: Literal["infeasible"] = "infeasible"
    params: Params = Field(description="The draw as Optuna's parameters.")
    reason: str = Field(description="The techniques that conflict.")


class SweepClosed(Event):
    """A driver ended without a crash."""

    event: Literal["close"] = "close"
    state: SweepState = Field(description="State of the sweep at that time.")


class RunsRecorded(Event):
    """The MLflow run of each trial, and the number of events that did not reach MLflow."""

    event: Literal["runs"] = "runs"
    ids: dict[str, str] = Field({}, description="Run id by trial number.")
    undelivered: int = Field(0, description="Number of events that did not reach MLflow.")


class RunOpened(Event):
    """The sweep has its own run in MLflow, above those of its trials."""

    event: Literal["run"] = "run"
    run: str = Field(description="Run id.")
    experiment: str = Field(description="Id of the experiment.")


class TestOpened(Event):
    """A confirmation used the test split to score a recipe of this sweep."""

    __test__: ClassVar[bool] = False  # not a test class for pytest
    event: Literal["test_opened"] = "test_opened"
    by: str = Field(description="Name of the confirmation.")


class TestScored(TrialEvent):
    """The score of a confirmation's winner on the test split."""

    __test__: ClassVar[bool] = False
    event: Literal["test"] = "test"
    openings_before: int = Field(description="How often the test split had been used for the searched sweep before.")
    classes: tuple[str, ...] = Field(description="Names of the classes, in the order of the labels.")
    results: dict[str, Any] = Field(description="Accuracy, confusion, calibration and worst errors.")


AnyEvent = Annotated[
    SweepStarted | WarmStart | Replication | Extension | TrialAdded | StopRequested
    | DataMoved | SettingsChanged | DriverStarted | FeaturesProbed | TrialStarted | EpochReported
    | TrialResumed | TrialLost | TrialEnded | DrawRefused | SweepClosed | RunOpened | RunsRecorded | TestOpened | TestScored,
    Field(discriminator="event"),
]  # fmt: skip
KINDS = frozenset(kind.model_fields["event"].default for kind in get_args(get_args(AnyEvent)[0]))
_CODEC: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)


def decode(line: bytes) -> AnyEvent:
    """Read one line of a ledger.

    Raises:
        ValueError: the line is not JSON, or not an event of a known kind with its fields.
    """
    return _CODEC.validate_json(line, context=RECORDED)


def encode(event: AnyEvent) -> bytes:
    """Return an event as one line of a ledger, with the newline."""
    try:
        return event.model_dump_json().encode() + b"\n"
    except PydanticSerializationError:
        raise UserError("a text in it has half of a character (a lone surrogate). Write it anew.") from None

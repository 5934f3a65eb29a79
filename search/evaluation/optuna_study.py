"""Write a sweep as an Optuna study, for Optuna's dashboard and other tools that read studies."""

from __future__ import annotations

import json
import warnings
from datetime import datetime
from typing import TYPE_CHECKING

from ledger.formatting import mask_secrets, plural
from ledger.record import SweepRecord
from ledger.trials import Trial
from training.errors import UserError
from training.process.optional import require_driver

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from search.core.sampler import Suggest


def write_study(record: SweepRecord, url: str) -> str:
    """Write all trials, with epochs as steps, and return a sentence that names the storage."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    if url.startswith("sqlite") and (url.endswith(("://", ":///")) or ":memory:" in url):
        raise UserError(
            f"--optuna={url}: this database is lost when the command ends. Name a file: sqlite:///study.db."
        )
    shown = mask_secrets(url)
    require_driver(f"--optuna={shown}", url)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    trials, space = record.trials, record.space
    try:
        study = optuna.create_study(
            storage=url, study_name=record.name, direction="maximize" if trials.sign > 0 else "minimize"
        )
    except optuna.exceptions.DuplicatedStudyError:
        raise UserError(
            f"--optuna={shown}: it already has a study called {record.name}. Name another storage."
        ) from None
    except (SQLAlchemyError, ImportError, ValueError) as error:
        reason = mask_secrets(str(error).strip().split("\n")[0])
        raise UserError(
            f"--optuna={shown}: Optuna cannot open it ({reason}). Give an address such as sqlite:///study.db."
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # only Optuna's plots use the names
        study.set_metric_names([trials.metric])
    study.add_trials([_translate(trial, trials.metric, space.suggest) for trial in trials])
    return f"Wrote {plural(len(trials), 'trial')} to {shown}: optuna.load_study(study_name={record.name!r}, storage={shown!r})."


def _translate(trial: Trial, metric: str, suggest: Suggest) -> FrozenTrial:
    """Return Optuna's form of a trial. A stopped trial becomes a pruned one.

    A baseline outside the space has no parameters, so its recipe is an attribute.
    """
    import optuna
    from optuna.trial import TrialState

    states = {"completed": TrialState.COMPLETE, "stopped": TrialState.PRUNED}
    unfinished = trial.ended is None or trial.state == "interrupted"
    state = TrialState.RUNNING if unfinished else states.get(trial.state, TrialState.FAIL)
    fixed = optuna.trial.FixedTrial(trial.params or {})
    if trial.params is not None:
        suggest(fixed)
    made = optuna.trial.create_trial(
        state=state,
        value=trial.score if state in (TrialState.COMPLETE, TrialState.PRUNED) else None,
        params=fixed.params,
        distributions=fixed.distributions,
        intermediate_values={report.epoch: report.measured()[metric] for report in trial.reports},
        user_attrs={
            "trial": trial.name,
            "state": trial.state,
            "origin": trial.origin,
            "recipe": json.dumps(trial.recipe.flat()),
        },
    )
    made.datetime_start = datetime.fromtimestamp(trial.started)
    made.datetime_complete = None if unfinished or trial.ended is None else datetime.fromtimestamp(trial.ended)
    return made

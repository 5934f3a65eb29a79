"""Export the best trial of a sweep, or the one that is named."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from analysis.export.bundle import check_out, export_model, export_recipe, read_export, read_sweep_id, write_summary
from analysis.export.registry import check_model_name, register
from analysis.export.summary import Provenance
from ledger.events import TestScored
from ledger.formatting import format_score, mask_secrets
from ledger.names import own_place
from ledger.record import SweepRecord
from ledger.trials import Trial
from training.errors import UserError
from training.process.optional import require
from training.recipe import read_recipe

if TYPE_CHECKING:
    from analysis.held_out.scoring import TestScore
    from training.loop.checkpoint import Saved


@dataclass(frozen=True)
class TrialExport:
    """Where a trial was exported to, and a sentence about what is there."""

    folder: Path
    sentence: str


@dataclass(frozen=True)
class Extras:
    """Additional outputs: ONNX files, and a model in MLflow's registry."""

    onnx: bool = False
    int8: bool = False
    register: str | None = None

    @property
    def need_weights(self) -> bool:
        """Whether any of them is made of the trial's weights."""
        return self.onnx or self.int8 or self.register is not None


def export_trial(
    record: SweepRecord,
    name: str | None,
    out: Path | None,
    extras: Extras = Extras(),
    headline: str | None = None,
    replaces_last: bool = False,
) -> TrialExport:
    """Export the best trial, or the one named.

    For a confirmation, the best trial is the one that was scored on the test split. `headline` is what the sweep's report
    says of its best trial, where that is known already. Without a name and a folder, the model of the sweep's end, of
    last trainings or an ensemble, is kept as the better one, unless `replaces_last`.
    """
    record.refuse_missing()
    trials, test = record.trials, record.test
    best = trials.by_number[test.trial] if test else trials.best()
    trial = best if name is None else record.find_trial(name, "--trial=")
    if trial is None:
        raise UserError(f"{record.name} has no completed trial, so it has no best one. Name a trial: --trial 0000.")
    may_keep = name is None and out is None and not replaces_last
    out = out or place_export(f"{record.name}-{trial.name}" if name else record.name, record)
    check_out(out)
    if extras.register is not None:
        check_model_name(extras.register)
        if trial.recipe.backbone.source == "own":
            raise UserError(
                f"--register={extras.register}: {trial.recipe.backbone.name} is a backbone of your own, which MLflow's servers "
                "do not have. Use --onnx instead."
            )
        if trial.recipe.attention_pooling.is_on:
            raise UserError(
                f"--register={extras.register}: MLflow's servers do not have the head of attention_pooling. Use --onnx instead."
            )
    if extras.onnx or extras.int8:
        require("--int8" if extras.int8 else "--onnx", "onnx", "onnxruntime", "onnxscript")
    if may_keep and _is_release(out):
        more = _add(record, out, extras) if extras.need_weights else ""
        alone = f"Trial {trial.name} as it was scored: sweep export {record.called} --trial {trial.name}."
        return TrialExport(out, f"{out} keeps the model of the sweep's end.{more} {alone}")
    saved, why = read_weights(record, trial)
    if saved is None and extras.need_weights:
        raise UserError(
            f"trial {trial.name} of {record.name} has no weights ({why}), but --onnx, --int8 and --register need "
            "them. Leave these options out to export only its recipe, and train it again with sweep train."
        )
    return write_trial(record, trial, saved, why, out, extras, headline)


def _is_release(out: Path) -> bool:
    try:
        summary = read_export(out).summary
        return summary["trained_on"] != "train" or "ensemble" in summary
    except UserError:
        return False


def place_export(name: str, record: SweepRecord) -> Path:
    """Return the folder for an export: `exports/NAME`, with a number where another sweep of that name has it."""
    return own_place("exports", name, record.header.id, read_sweep_id)


def write_trial(
    record: SweepRecord,
    trial: Trial,
    saved: Saved | None,
    why: str,
    out: Path,
    extras: Extras = Extras(),
    headline: str | None = None,
) -> TrialExport:
    """Write a trial's export; without a checkpoint, for the reason `why`, the recipe alone is written."""
    kept = " --score last" if record.space.search.score == "last" else ""
    train_again = f"Train it again: sweep train {out}/recipe.yaml{kept}"
    if saved is None:
        export_recipe(trial.recipe, out)
        whose = f"the recipe of {name_trial(record, trial)}"
        return TrialExport(out, f"Exported {whose} to {out}; its weights are gone ({why}). {train_again}")
    source = source_of(record, trial, record.test, saved["classes"])
    if finding := headline or find_headline(record, trial):
        source["finding"] = finding
    export_model(read_recipe(saved["recipe"]), saved["state_dict"], source, out)
    what = f"recipe, weights, summary, card.{_add(record, out, extras) if extras.need_weights else ''}"
    return TrialExport(out, f"Exported {name_trial(record, trial)} to {out}: {what} {train_again}")


def read_weights(record: SweepRecord, trial: Trial) -> tuple[Saved | None, str]:
    """Return a trial's best checkpoint, else None and the reason."""
    checkpoint = record.folder.trial(trial.number) / "best.ckpt"
    if not checkpoint.exists():
        return None, f"it was {trial.state}" if trial.state != "completed" else "only the best few trials keep weights"
    from training.evaluate import read_trained

    try:
        saved = read_trained(checkpoint)
        saved["recipe"]["data"] = trial.recipe.data.model_dump()  # the images may have moved since
        return saved, ""
    except UserError as error:
        return None, str(error).rstrip(".")


def source_of(record: SweepRecord, trial: Trial, test: TestScored | None, classes: Sequence[str]) -> Provenance:
    """Describe the origin of an export. `test` is the sweep's test score, also if it is that of another trial."""
    metric, last = record.trials.metric, trial.reports[-1]
    # A ledger that was repaired may have lost the best epoch's report; later ones still have its score.
    measured = {name: value for name, value in trial.kept_metrics.items() if value is not None}
    return Provenance(
        metrics=measured or {metric: last.score},
        metric=metric,
        score=last.score,
        standard_error=trial.standard_error,
        best_epoch=last.best_epoch,
        trained_on="train",
        classes=list(classes),
        threads=record.driver.threads,
        sweep=record.name,
        sweep_id=record.header.id,
        trial=trial.name,
        mlflow_run_id=record.run_ids.get(trial.number),
        test=cast("TestScore", test.results) if test and test.trial == trial.number else None,
    )


def find_headline(record: SweepRecord, trial: Trial) -> str | None:
    """Return the headline of the sweep's report, or of its page if it is a confirmation; None if it is not about this trial."""
    if record.replication is None:
        from analysis.effects.lead import judge_record
        from analysis.report.sentences import describe_lead

        return describe_lead(record.trials.metric, judge_record(record)[1]) if trial is record.trials.best() else None
    if record.test is None or record.test.trial != trial.number:
        return None
    from search.evaluation.replications.confirm_page import judge
    from search.evaluation.replications.confirmation import compare
    from search.evaluation.replications.replication import read_replication

    try:
        return judge(record.trials.metric, compare(read_replication(record))[0])
    except UserError:  # the searched sweep was removed
        return None


def name_trial(record: SweepRecord, trial: Trial) -> str:
    """Name a trial so that a user can find it; in a replication by its recipe's label, its seed and its number."""
    event = record.replication
    if event is None:
        return f"trial {trial.name}"
    label = event.trials[trial.number].label
    recipe = (
        f"trial {label}'s recipe" if label.isdigit() else f"the {label}" if " " not in label else f"the recipe {label}"
    )
    return f"{recipe} of {event.of}, as trained on seed {trial.recipe.seed} (trial {trial.name} of {record.name})"


def _add(record: SweepRecord, out: Path, extras: Extras) -> str:
    """Make the extras, add their facts to the summary and the card, and return sentences about them."""
    from analysis.export.onnx_export import export_onnx, quantise
    from training.evaluate import load_same_data

    exported = read_export(out)
    data, said = load_same_data(exported.recipe, exported.classes), ""
    if extras.onnx or extras.int8:
        exported.summary["onnx"] = export_onnx(exported, data)
        said += " model.onnx gives the same logits."
    if extras.int8:
        exported.summary["int8"] = facts = quantise(exported, data)
        said += (
            f" model.int8.onnx, {facts['megabytes']:.1f} of {facts['megabytes_float32']:.1f} MB, has a validation accuracy "
            f"of {format_score('val_accuracy', facts['val_accuracy'])} where float32 has "
            f"{format_score('val_accuracy', facts['val_accuracy_float32'])}"
            f"{'' if exported.summary['trained_on'] == 'train' else ', on images that it was trained on'}."
        )
    write_summary(exported.recipe, exported.summary, out)
    if extras.register is not None:
        settings = record.settings
        address = register(
            exported, data, name=extras.register, tracking_uri=settings.tracking_uri, experiment=settings.experiment
        )
        # Without --env-manager local MLflow installs the libraries anew, which needs a network.
        store = shlex.quote(mask_secrets(settings.tracking_uri))
        serve = f"MLFLOW_TRACKING_URI={store} mlflow models serve -m {address} --env-manager local"
        said += f" Registered as {address}. Serve it: `{serve}`."
    return said

"""`sweep soup` as a user calls it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

import search.evaluation.soup as soup_module
import training.soup
from analysis.export.bundle import read_export
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from tests.commands import call
from training.data.load_data import load_data
from training.errors import UserError
from training.evaluate import predict_part
from training.recipe import read_recipe


def test_the_mean_of_trials_is_exported_with_its_own_scores_and_a_card_that_names_them(home, monkeypatch, capsys):
    def load_without_test(recipe, classes):
        return replace(load_data(recipe.data), test=None)  # reading it would fail

    monkeypatch.setattr(training.soup, "load_same_data", load_without_test)
    monkeypatch.setattr(training.soup, "is_better", lambda *scores: False)  # each trial is kept
    call("soup", "tiny")
    printed = " ".join(capsys.readouterr().out.split())
    exported = read_export(home / "exports" / "tiny-soup")
    ranked = [trial.name for trial in SweepRecord.open(SweepFolder(home / "sweeps" / "tiny")).trials.ranked()]
    assert exported.summary["soup"] == ranked
    assert (exported.summary["trial"], exported.summary["mlflow_run_id"]) == (ranked[0], None)
    logits, labels = predict_part(exported.model, load_data(exported.recipe.data).val, exported.recipe)
    assert exported.summary["score"] == pytest.approx((logits.argmax(1) == labels).double().mean().item())
    assert exported.summary["metrics"]["val_accuracy"] == exported.summary["score"]
    card = (home / "exports" / "tiny-soup" / "MODEL_CARD.md").read_text()
    assert f"The weights are the mean of those of the trials {', '.join(ranked)}" in card
    assert "Trials were chosen by this score" in card
    assert f"trial {ranked[0]} alone, the best, has" in printed
    assert "The trials were chosen on these images, so it is too optimistic." in printed


@pytest.mark.slow
def test_a_soup_that_no_other_trial_improves_is_not_written(home, monkeypatch, capsys):
    monkeypatch.setattr(training.soup, "is_better", lambda *scores: True)
    call("soup", "tiny", "--out", "mean")
    printed = " ".join(capsys.readouterr().out.split())
    assert "so it is better alone, and nothing is written. Export it: sweep export tiny --trial" in printed
    assert not (home / "mean").exists()


def test_a_sweep_with_the_weights_of_one_trial_is_refused_in_one_sentence(home):
    record = SweepRecord.open(SweepFolder(home / "sweeps" / "tiny"))
    for trial in record.trials.ranked()[1:]:
        shutil.rmtree(record.folder.trial(trial.number))
    with pytest.raises(UserError, match=r"tiny: a soup needs at least two completed trials .* and there is one\. Keep"):
        call("soup", "tiny")


@pytest.mark.parametrize(
    ("fields", "different"),
    [
        ({"backbone": {"name": "test_resnet"}}, "backbone"),
        ({"preprocessing": {"image_size": 32}}, "preprocessing"),
        ({"seed": 1}, "seed"),
        ({"flip_average": {"enabled": True}}, "flip_average"),
        ({"optimizer": {"name": "adamw"}, "unfreeze": {"level": "most"}, "epochs": 3}, ""),
    ],
)
def test_trials_of_a_soup_share_their_start_and_their_input(fields, different):
    assert soup_module.find_difference(read_recipe({}), read_recipe(fields)) == different


def test_a_trial_that_does_not_fit_is_named_and_left_out(home, monkeypatch, capsys):
    first, second, *_ = SweepRecord.open(SweepFolder(home / "sweeps" / "tiny")).trials.ranked()
    odd = second.recipe.optimizer.lr
    monkeypatch.setattr(soup_module, "find_difference", lambda one, other: "seed" if other.optimizer.lr == odd else "")
    monkeypatch.setattr(training.soup, "is_better", lambda *scores: False)
    call("soup", "tiny")
    printed = " ".join(capsys.readouterr().out.split())
    assert f"Trial {second.name} is left out: its seed is not that of trial {first.name}." in printed
    soup = json.loads((home / "exports" / "tiny-soup" / "summary.json").read_text())["soup"]
    assert first.name in soup
    assert second.name not in soup


def test_an_ensemble_of_snapshots_is_left_out(home, monkeypatch, capsys):
    _, second, *_ = SweepRecord.open(SweepFolder(home / "sweeps" / "tiny")).trials.ranked()
    read = soup_module.read_weights

    def with_snapshots(record, trial):
        saved, why = read(record, trial)
        if saved and trial.number == second.number:
            schedule = {"name": "cosine_restarts", "cycles": 2}
            saved["recipe"] = saved["recipe"] | {"snapshots": {"members": 2}, "schedule": schedule}
        return saved, why

    monkeypatch.setattr(soup_module, "read_weights", with_snapshots)
    call("soup", "tiny")
    printed = " ".join(capsys.readouterr().out.split())
    assert f"Trial {second.name} is left out: with snapshots it is an ensemble already." in printed
    assert second.name not in printed.partition("Averaging trials, best first: ")[2].partition(".")[0]

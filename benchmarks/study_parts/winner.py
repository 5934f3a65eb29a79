"""A real sweep of the study's space, and everything after it: confirm, ablate, export, reload in plain timm, predict."""

from __future__ import annotations

import json
import time
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from rich.console import Console

import search
from analysis.effects.lead import judge_lead
from analysis.effects.technique_effects import fit_sweep, measure_effects
from analysis.export.prediction import Options, predict_images
from analysis.loading import load
from benchmarks.demo import score_test
from benchmarks.study_parts.photos import read_test
from benchmarks.study_parts.recording import SPACE
from ledger.recipe_text import baseline_of, short_recipe
from ledger.tables import make_tables
from search.result import Result

NAME = "photos"
RESULTS = "winner.json"
OURS = "ours.json"  # the real sweeps for the comparison with others, this one first


@dataclass(frozen=True)
class Plan:
    """The size of the real sweep: its trials, and how many of the best are confirmed on how many fresh seeds.

    An ablation trains about fifteen recipes on each of its seeds.
    """

    trials: int = 24
    top: int = 2
    seeds: int = 4
    ablation_seeds: int = 2


def run_winner(folder: Path, overrides: list[str], plan: Plan) -> dict[str, Any]:
    """Run what the folder does not have yet, and return the results as `winner.json` has them."""
    kept = folder / RESULTS
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    with chdir(folder):  # exports and the page of the report are written below the working folder
        result, results = _sweep(folder, overrides, plan, 0)
        confirmation = result.confirm(plan.top, plan.seeds)
        results["confirmation"] = confirmation.to_json()
        results["ablation"] = result.ablate(plan.ablation_seeds).to_json()
        result.report()
        effects = measure_effects(fit_sweep(load(NAME)))
        effects.to_json(folder / "effects.json", orient="records")
        results |= _reload(folder, Path("exports") / confirmation.sweep)
    kept.write_text(json.dumps(results, indent=1))
    return results


def run_more(folder: Path, overrides: list[str], plan: Plan, searches: int) -> None:
    """Run the same sweep with other seeds of the search, those that the folder does not have yet."""
    kept = folder / OURS
    winner = run_winner(folder, overrides, plan)
    results = json.loads(kept.read_text()) if kept.exists() else [winner]
    kept.write_text(json.dumps(results))
    for seed in range(len(results), searches):
        with chdir(folder):
            results.append(_sweep(folder, overrides, plan, seed)[1])
        kept.write_text(json.dumps(results))


def _sweep(folder: Path, overrides: list[str], plan: Plan, seed: int) -> tuple[Result, dict[str, Any]]:
    began = time.perf_counter()
    result = search.run(
        SPACE,
        overrides,
        name=f"{NAME}-{seed}" if seed else NAME,
        seed=seed,
        trials=plan.trials,
        tracking_uri=f"sqlite:///{folder}/mlflow.db",
        keep_best=plan.trials,
        or_resume=True,
        console=Console(quiet=True),
    )
    results = _describe_search(result) | {"seconds": time.perf_counter() - began}
    test = score_test(result.record.folder.trial(results.pop("best_number")) / "best.ckpt")
    return result, results | {"test": test}


def _describe_search(result: Result) -> dict[str, Any]:
    trials, best = result.record.trials, result.best
    assert best is not None, "no trial completed"
    tables = make_tables(result.record)
    lead = judge_lead(tables, fit_sweep(tables))
    first = next(trial for trial in trials.ranked() if trial.origin == "baseline")
    states = trials.count()
    return {
        "trials": sum(states.values()),
        "states": states,
        "epochs": sum(trial.epoch for trial in trials),
        "best": best.score,
        "best_number": best.number,
        "best_recipe": short_recipe(best.recipe, baseline_of(trials)),
        "baseline": first.score,
        "lead": lead.verdict if lead else None,
        "standard_error": best.standard_error,
        "trial_seconds": sum(trial.reports[-1].worker_seconds or 0.0 for trial in trials if trial.reports),
    }


def _reload(folder: Path, export: Path) -> dict[str, Any]:
    """Predict the test photographs with `sweep predict`'s code and with timm alone, and compare the labels."""
    paths, labels = read_test(folder)
    predictions = folder / "predictions.jsonl"
    predict_images(export, paths, predictions, Options(top_k=1, json=True))
    names = [json.loads(line)["label"] for line in predictions.read_text().splitlines()]
    theirs = predict_with_timm(export, paths)
    return {
        "test_images": len(paths),
        "predicted_right": float(np.mean([a == b for a, b in zip(names, labels, strict=True)])),
        "timm_right": float(np.mean([a == b for a, b in zip(theirs, labels, strict=True)])),
        "timm_agrees": float(np.mean([a == b for a, b in zip(theirs, names, strict=True)])),
    }


@torch.inference_mode()
def predict_with_timm(export: Path, paths: list[str]) -> list[str]:
    """Return the labels that a model of timm gives, which has loaded an export without this project."""
    model = timm.create_model(f"local-dir:{export}", pretrained=True).eval()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
    images = torch.stack([transform(Image.open(path).convert("RGB")) for path in paths])
    chosen = torch.cat([model(batch).argmax(1) for batch in images.split(256)])
    return [model.pretrained_cfg["label_names"][index] for index in chosen.tolist()]

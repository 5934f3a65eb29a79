"""What a sweep hands back after some minutes, judged by unseen photographs, beside what a user would do by hand.

    python benchmarks/minutes.py --photos FOLDER --minutes 3 --seeds 3 [--first 0] [--images 400] [--unseen 1500]
        [--classes a,b] [--methods ours,probe,recipe,ray] [--work WORK]

FOLDER has a subfolder of photographs for each class. Each seed draws the user's photographs, equally many of a class, and
others that no method sees. All methods have the same pretrained backbone, from the extra `weights`, and images of the size
that a preset prefers; `ours` takes smaller ones where these would take too long. `ours` is `sweep run --preset good`, and
`ray` a search with Ray Tune as in its documentation; both get the minutes. `probe`, a logistic regression on the features,
and `recipe`, one usual fine-tuning, take what they take. The seconds are those of the wall clock until the model is there;
those of `ours` include the start of Python. Each method claims an accuracy, that of its own validation; `ours` what
it expects of one model, or of the mean of several, on new images. WORK keeps the photographs and results.jsonl,
and a second call runs what is missing there.
Compare seconds, and methods that have a time, only where nothing else runs on the machine.
"""

from __future__ import annotations

import argparse
import copy
import csv
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn.functional import cross_entropy
from torchvision.transforms import v2

from analysis.effects.lead import judge_lead
from analysis.effects.technique_effects import fit_sweep
from analysis.export.prediction import Options, predict_images
from analysis.report.sentences import NORMAL_90
from ledger.folder import open_folder
from ledger.recipe_text import baseline_of, describe_recipe
from ledger.record import SweepRecord
from ledger.tables import make_tables
from search.presets.rules import choose_side, read_data
from training.contract.specs import Backbone
from training.data.files.decode import read_image
from training.data.files.listing import EXTENSIONS
from training.model.build import build_model
from training.model.weights import pretrained_config
from training.process.optional import PACKAGED_BACKBONE
from training.recipe import read_recipe

BACKBONE = Backbone(name=PACKAGED_BACKBONE)
TIMED = ("ours", "ray")  # the methods that get the minutes
EPOCHS, VAL_SHARE = 10, 0.15  # of `recipe` and `ray`
LEAST_AREA = 0.5  # of a random crop; torchvision's 0.08 is for trainings from random weights
BATCH = 64  # of images that are only classified
RECIPE = {"lr": 3e-4, "weight_decay": 0.01, "batch_size": 32, "frozen": False, "smoothing": 0.0, "mixup": False}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INPUT: dict[str, Any] = dict(pretrained_config(BACKBONE) or {})


@dataclass(frozen=True)
class Photos:
    """Decoded photographs, uint8 (N, 3, side, side), and the numbers of their classes."""

    images: torch.Tensor
    labels: torch.Tensor
    classes: tuple[str, ...]

    @property
    def class_count(self) -> int:
        """For what Ray pickles: cloudpickle takes `classes` in a function that uses torch for the module torch.classes."""
        return len(self.classes)

    def select(self, indices: np.ndarray) -> Photos:
        return Photos(self.images[indices], self.labels[indices], self.classes)


@dataclass(frozen=True)
class Handed:
    """A model that was handed back: its accuracy on unseen photographs, and the one that its method claims."""

    accuracy: float
    seconds: float
    claimed: float | None
    error: float | None  # the standard error of the claimed accuracy
    note: str


def draw(photos: Path, classes: list[str], counts: dict[str, int], seed: int, home: Path) -> None:
    """Copy photographs into a folder for each part, from one class after the other as long as there are any."""
    files: dict[str, list[Path]] = {}
    for name in classes or sorted(path.name for path in photos.iterdir() if path.is_dir()):
        files[name] = sorted(path for path in (photos / name).iterdir() if path.suffix.lower() in EXTENSIONS)
        random.Random(f"{seed} {name}").shuffle(files[name])
    partial = home.with_name(f"{home.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for part, wanted in counts.items():
        turn = 0
        while turn < wanted and (rest := [name for name in files if files[name]]):
            for name in rest[: wanted - turn]:
                out = partial / part / name
                out.mkdir(parents=True, exist_ok=True)
                shutil.copy2(files[name].pop(), out)
                turn += 1
    partial.rename(home)


def read_photos(folder: Path, classes: tuple[str, ...], side: int) -> Photos:
    fit = v2.Compose([v2.Resize(side, v2.InterpolationMode(INPUT["interpolation"])), v2.CenterCrop(side)])
    paths = [(path, number) for number, name in enumerate(classes) for path in sorted((folder / name).glob("*"))]
    images = [fit(torch.from_numpy(read_image(str(path))).permute(2, 0, 1)) for path, _ in paths]
    return Photos(torch.stack(images), torch.tensor([number for _, number in paths]), classes)


def read_user(home: Path) -> Photos:
    """Return the user's photographs, with the side that a preset chooses."""
    classes = tuple(sorted(path.name for path in (home / "photos").iterdir()))
    recipe = read_recipe({"data": {"name": "image_folder", "root": str(home / "photos")}})
    side = choose_side(read_data(recipe.data, "good"), BACKBONE, max(INPUT["input_size"][1:]))
    return read_photos(home / "photos", classes, side)


def read_unseen(home: Path, like: Photos) -> Photos:
    return read_photos(home / "unseen", like.classes, like.images.shape[-1])


def normalise(images: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(INPUT[name]).view(3, 1, 1) for name in ("mean", "std"))
    return ((images / 255 - mean) / std).to(DEVICE, memory_format=torch.channels_last)


def standard_error(share: float, count: int) -> float:
    """Return the error of a share of right images that trials of a sweep have too (Agresti & Coull 1998)."""
    share = (share * count + 2) / (count + 4)
    return (share * (1 - share) / (count + 4)) ** 0.5


@torch.inference_mode()
def score(model: nn.Module, photos: Photos) -> float:
    model.eval()
    right = 0
    for images, labels in zip(photos.images.split(BATCH), photos.labels.split(BATCH), strict=True):
        right += int((model(normalise(images)).argmax(1).cpu() == labels).sum())
    return right / len(photos.labels)


def divide(photos: Photos, seed: int) -> tuple[Photos, Photos]:
    """Return a training and a validation part."""
    labels = photos.labels.numpy()
    train, val = train_test_split(np.arange(len(labels)), test_size=VAL_SHARE, stratify=labels, random_state=seed)
    return photos.select(train), photos.select(val)


def fine_tune(model: nn.Module, train: Photos, val: Photos, config: dict[str, Any]) -> Iterator[float]:
    """Train a model, and yield its accuracy on the validation part after each epoch."""
    side, batch_size = train.images.shape[-1], config["batch_size"]
    change = v2.Compose([v2.RandomResizedCrop(side, scale=(LEAST_AREA, 1.0)), v2.RandomHorizontalFlip()])
    mix = v2.MixUp(alpha=0.2, num_classes=train.class_count) if config["mixup"] else lambda *batch: batch
    if config["frozen"]:
        model.requires_grad_(False)
        model.get_classifier().requires_grad_(True)  # type: ignore[operator]
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, config["lr"], weight_decay=config["weight_decay"])
    batches_per_epoch = -(-len(train.labels) // batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * batches_per_epoch)
    for _ in range(EPOCHS):
        model.train(not config["frozen"])
        for indices in torch.randperm(len(train.labels)).split(batch_size):
            if len(indices) > 1:  # BatchNorm cannot learn from one image
                images = normalise(torch.stack([change(train.images[index]) for index in indices]))
                images, labels = mix(images, train.labels[indices].to(DEVICE))
                optimizer.zero_grad()
                cross_entropy(model(images), labels, label_smoothing=config["smoothing"]).backward()
                optimizer.step()
            schedule.step()
        yield score(model, val)


def judge(
    model: nn.Module, home: Path, photos: Photos, seconds: float, claimed: float, count: int, note: str
) -> Handed:
    """Score a model that claims an accuracy on `count` photographs."""
    accuracy = score(model, read_unseen(home, photos))
    return Handed(accuracy, seconds, claimed, standard_error(claimed, count), note)


def build(photos: Photos) -> nn.Module:
    model = build_model(BACKBONE, photos.class_count, photos.images.shape[-1])
    return model.to(DEVICE, memory_format=torch.channels_last)  # takes 0.6 of the time on a CPU


def run_probe(home: Path, seed: int, minutes: float) -> Handed:
    began = time.perf_counter()
    photos = read_user(home)
    model = build(photos).eval()

    @torch.inference_mode()
    def features(part: Photos) -> np.ndarray:
        parts = [model.forward_features(normalise(images)) for images in part.images.split(BATCH)]  # type: ignore[operator]
        return torch.cat([model.forward_head(one, pre_logits=True).cpu() for one in parts]).numpy()  # type: ignore[operator]

    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    grid = {"logisticregression__C": [1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0]}
    search = GridSearchCV(pipeline, grid, cv=StratifiedKFold(5, shuffle=True, random_state=seed))
    search.fit(features(photos), photos.labels.numpy())
    seconds = time.perf_counter() - began
    unseen, claimed = read_unseen(home, photos), float(search.best_score_)
    error = standard_error(claimed, len(photos.labels))
    accuracy = float(search.score(features(unseen), unseen.labels.numpy()))
    return Handed(accuracy, seconds, claimed, error, f"C={search.best_params_['logisticregression__C']:g}")


def run_recipe(home: Path, seed: int, minutes: float) -> Handed:
    began = time.perf_counter()
    photos = read_user(home)
    train, val = divide(photos, seed)
    torch.manual_seed(seed)
    model, best, claimed, epoch = build(photos), {}, -1.0, 0
    for number, accuracy in enumerate(fine_tune(model, train, val, RECIPE), 1):
        if accuracy > claimed:
            best, claimed, epoch = copy.deepcopy(model.state_dict()), accuracy, number
    seconds = time.perf_counter() - began
    model.load_state_dict(best)
    return judge(model, home, photos, seconds, claimed, len(val.labels), f"epoch {epoch} of {EPOCHS}")


def run_ray(home: Path, seed: int, minutes: float) -> Handed:
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    def train_one(config: dict[str, Any], train: Photos, val: Photos) -> None:
        model, best = build(train), -1.0
        for accuracy in fine_tune(model, train, val, config):
            with tempfile.TemporaryDirectory() as own:
                torch.save(model.state_dict(), Path(own, "model.pt"))
                tune.report({"accuracy": accuracy}, checkpoint=tune.Checkpoint(own) if accuracy > best else None)
            best = max(best, accuracy)

    space = {
        "lr": tune.loguniform(1e-4, 1e-2),
        "weight_decay": tune.loguniform(1e-5, 1e-1),
        "batch_size": tune.choice([16, 32, 64]),
        "frozen": tune.choice([False, True]),
        "smoothing": tune.uniform(0.0, 0.2),
        "mixup": tune.choice([False, True]),
    }
    began = time.perf_counter()
    photos = read_user(home)
    train, val = divide(photos, seed)
    trainable = tune.with_parameters(train_one, train=train, val=val)
    tune_config = tune.TuneConfig(
        metric="accuracy",
        mode="max",
        num_samples=-1,
        time_budget_s=60 * minutes,
        search_alg=OptunaSearch(seed=seed),
        scheduler=ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=3),
        reuse_actors=True,
    )
    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        trainable = tune.with_resources(trainable, {"cpu": 1, "gpu": int(DEVICE == "cuda")})
        run_config = tune.RunConfig(storage_path=folder, verbose=0)
        try:
            found = tune.Tuner(trainable, param_space=space, tune_config=tune_config, run_config=run_config).fit()
        finally:
            ray.shutdown()
        seconds = time.perf_counter() - began
        if not any(result.checkpoint for result in found):
            return hand_nothing(home, seconds)
        best = found.get_best_result(scope="all")
        with best.checkpoint.as_directory() as own:  # the last one, so that of the best epoch
            state = torch.load(Path(own, "model.pt"), map_location=DEVICE, weights_only=True)
    model = build(photos)
    model.load_state_dict(state)
    claimed = float(best.metrics_dataframe["accuracy"].max())
    note = f"{len(found)} trials, {' '.join(f'{name}={value:.2g}' for name, value in best.config.items())}"
    return judge(model, home, photos, seconds, claimed, len(val.labels), note)


def run_ours(home: Path, seed: int, minutes: float) -> Handed:
    budget = f"{round(60 * minutes)}s"
    name, sweep = f"s{budget}", Path(sys.executable).with_name("sweep")
    export = home / "exports" / name
    for left in (export, home / "sweeps" / name):  # of a call that was interrupted
        shutil.rmtree(left, ignore_errors=True)
    own = {key: value for key, value in os.environ.items() if key not in ("SWEEP_STORAGE", "MLFLOW_TRACKING_URI")}
    command = [sweep, "run", "--preset", "good", "data.root=photos", "--time-budget", budget, "--name", name]
    began = time.perf_counter()
    with (home / f"{name}.log").open("w") as log:
        subprocess.run(command, cwd=home, env=own, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    seconds = time.perf_counter() - began
    if not (export / "model.safetensors").exists():
        return hand_nothing(home, seconds)
    with tempfile.TemporaryDirectory() as folder:
        predict_images(export, home / "unseen", Path(folder, "labels.csv"), Options(top_k=1))
        with Path(folder, "labels.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    accuracy = sum(Path(row["file"]).parts[0] == row["label"] for row in rows) / len(rows)
    facts = json.loads((export / "summary.json").read_text())
    record = SweepRecord.open(open_folder(home / "sweeps", name), only_shown=True)
    trial = record.trials.by_number[int(facts["trial"])]
    note = f"{len(record.trials)} trials, {trial.name}: {describe_recipe(trial, baseline_of(record.trials))}"
    note += f", {facts['metric']}, trained on {facts['trained_on']}"
    tables = make_tables(record)
    lead = judge_lead(tables, fit_sweep(tables))
    if "scored" in facts or lead is None or math.isnan(lead.expected):
        return Handed(accuracy, seconds, facts["score"], facts["standard_error"], note)
    return Handed(accuracy, seconds, lead.expected, lead.expected_error, note)


def hand_nothing(home: Path, seconds: float) -> Handed:
    """Return what guessing reaches."""
    return Handed(1 / len(list((home / "photos").iterdir())), seconds, None, None, "no model in the time")


METHODS = {"ours": run_ours, "probe": run_probe, "recipe": run_recipe, "ray": run_ray}


def show(rows: list[dict[str, Any]], methods: list[str], console: Console) -> None:
    """Print the mean of each method over the seeds, and how far `ours` is ahead, paired by seed."""
    table = Table("method", "seeds", "accuracy", "seconds", "claimed", "claim within 90 %", "ours − it [90 %], points")
    scores = {name: {row["seed"]: row["accuracy"] for row in rows if row["method"] == name} for name in METHODS}
    for name in (name for name in methods if scores[name]):
        own = [row for row in rows if row["method"] == name]
        known = [row for row in own if row["claimed"] is not None]
        held = [abs(row["claimed"] - row["accuracy"]) <= NORMAL_90 * row["error"] for row in known]
        ahead = [100 * (scores["ours"][seed] - value) for seed, value in scores[name].items() if seed in scores["ours"]]
        gain = f"{np.mean(ahead):+.1f}" if ahead and name != "ours" else ""
        if gain and len(ahead) >= 3:
            half = stats.t.ppf(0.95, len(ahead) - 1) * np.std(ahead, ddof=1) / len(ahead) ** 0.5
            gain += f" [{np.mean(ahead) - half:+.1f}, {np.mean(ahead) + half:+.1f}]"
        accuracy, seconds = (float(np.mean([row[field] for row in own])) for field in ("accuracy", "seconds"))
        claims = (f"{np.mean([row['claimed'] for row in known]):.1%}", f"{np.mean(held):.0%}") if known else ("", "")
        table.add_row(name, str(len(own)), f"{accuracy:.1%}", f"{seconds:.0f}", *claims, gain)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="a folder with a subfolder for each class")
    parser.add_argument("--images", type=int, default=400, help="photographs of the user")
    parser.add_argument("--unseen", type=int, default=1500, help="other photographs, at most")
    parser.add_argument("--classes", default="", help="names of subfolders, with commas; default: all")
    parser.add_argument("--minutes", type=float, default=3.0, help=f"time of {' and '.join(TIMED)}")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--methods", default=",".join(METHODS), help=f"some of {', '.join(METHODS)}, with commas")
    parser.add_argument("--work", type=Path, help="where photographs and results are kept; default: a new folder")
    args = parser.parse_args()
    methods, classes = args.methods.split(","), [name for name in args.classes.split(",") if name]
    if unknown := set(methods) - METHODS.keys():
        parser.error(f"--methods: there is no {', '.join(sorted(unknown))}")
    work = (args.work or Path(tempfile.mkdtemp(prefix="minutes-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    settings, kept = work / "settings.json", work / "results.jsonl"
    drawn = {"photos": str(args.photos.resolve()), "classes": classes, "images": args.images, "unseen": args.unseen}
    if settings.exists() and json.loads(settings.read_text()) != drawn:
        parser.error(f"--work: {work} has results with other photographs, {settings.read_text()}; give another folder")
    settings.write_text(json.dumps(drawn))
    seeds = range(args.first, args.first + args.seeds)
    for seed in seeds:
        home = work / f"seed-{seed}"
        if not home.exists():
            draw(args.photos, classes, {"photos": args.images, "unseen": args.unseen}, seed, home)
        for method in methods:
            minutes = args.minutes if method in TIMED else None
            if any((row["seed"], row["method"], row["minutes"]) == (seed, method, minutes) for row in read_rows(kept)):
                continue
            handed = METHODS[method](home, seed, args.minutes)
            with kept.open("a") as file:
                file.write(json.dumps({"seed": seed, "minutes": minutes, "method": method, **asdict(handed)}) + "\n")
            claimed = "" if handed.claimed is None else f", claimed {handed.claimed:.1%} ± {handed.error:.1%}"
            got = f"{handed.accuracy:.1%} in {handed.seconds:.0f} s{claimed}"
            print(f"seed {seed} {method}: {got} ({handed.note})", flush=True)
    rows = [row for row in read_rows(kept) if row["minutes"] in (None, args.minutes) and row["seed"] in seeds]
    show(rows, methods, Console(width=110))
    print(f"Results: {kept}")


def read_rows(kept: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []


if __name__ == "__main__":
    main()

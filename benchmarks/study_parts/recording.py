"""Train random recipes of the study's space to the end, and keep their curves as a set for `search_quality.py`.

Each training is a line of `recordings.jsonl`, so an interrupted recording goes on where it stopped.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.demo import score_test
from benchmarks.study_parts.backbone import WEIGHTS
from benchmarks.study_parts.photos import TUNED
from search.core.sampler import Sampler
from spaces.load import load_space
from spaces.parameters.conditions import Retrace
from spaces.parameters.domains import Choice, find_parameters, is_scalar, word_of
from spaces.parameters.draws import Params, draw
from spaces.parameters.views import encode
from spaces.space import Space
from training.errors import UserError
from training.loop.epoch_report import Report
from training.recipe import Recipe, read_recipe
from training.train import train

LIBRARIES = ("albumentations", "peft", "timm.data.random_erasing", "torchvision.transforms.v2")
SPACE = Path(__file__).with_name("space.yaml")
LINES = "recordings.jsonl"


@dataclass(frozen=True)
class Recording:
    """One training. `scores` and `seconds` have a value for each epoch; the seconds are those of the CPU.

    A training that diverged has fewer scores, and one value more of seconds than of scores.
    """

    number: int
    origin: str  # baseline, or random
    params: Params
    length: int
    scores: list[float]
    seconds: list[float]
    test: float | None  # accuracy on the test split of the best epoch's weights; None if it diverged at once


def study_overrides(folder: Path, overrides: list[str]) -> list[str]:
    """Return the overrides that give the space the data and the weights of a folder, and then the user's."""
    return [f"data.path={folder / TUNED}", f"backbone.weights={folder / WEIGHTS}", *overrides]


def load_study_space(folder: Path, overrides: list[str]) -> Space:
    """Load the space of the study with the data and the weights of a folder."""
    return load_space(SPACE, study_overrides(folder, overrides))


def list_domains(space: Space) -> dict[str, Any]:
    """Return the search parameters in the words of a space file.

    Raises:
        UserError: an option has search parameters of its own, which the form of a recorded set cannot hold.
    """
    domains: dict[str, Any] = {}
    for steps, domain in find_parameters(space.recipe):
        name = ".".join(map(str, steps))
        if isinstance(domain, Choice):
            inner = [option for option in domain.options if not is_scalar(option) and any(find_parameters(option))]
            if inner:
                raise UserError(f"{name}: an option of a recorded set holds no domain. Give it plain values.")
            domains[name] = {"choice": list(domain.keys)}
        else:
            domains[name] = {word_of(domain): [domain.low, domain.high]}
    return domains


def recipe_of(space: Space, params: Params) -> Recipe:
    """Return the recipe that these parameters draw."""
    return read_recipe({name: draw(value, Retrace(params), name) for name, value in space.recipe.items()})


def params_of(space: Space, recipe: Recipe) -> Params:
    """Return the parameters that draw this recipe, each search parameter by its own name."""
    params = encode(space.recipe, recipe)
    assert params is not None, "the recipe was drawn from this space"
    return params


def record(space: Space, folder: Path, count: int, jobs: int = 1) -> None:
    """Train the baselines and then random recipes, until the folder has `count` of the latter."""
    _cut_torn_line(folder / LINES)
    known = {recording.number for recording in read_recordings(folder)}
    todo = [task for task in _list_trainings(space, count) if task[0] not in known]
    if jobs == 1:
        _prepare()
    pools = ProcessPoolExecutor(jobs, get_context("spawn"), _prepare) if jobs > 1 else nullcontext()
    with (folder / LINES).open("a") as file, pools as pool:
        for line in (pool.map if pool else map)(partial(_train, folder), todo):
            file.write(json.dumps(asdict(line)) + "\n")
            file.flush()
            best = max(line.scores, default=float("nan"))
            seconds = sum(line.seconds)
            print(f"{line.number}: {seconds:.1f} s, validation {best:.1%}, test {line.test or 0:.1%}", flush=True)


Training = tuple[int, str, Params, Recipe]  # number, origin, parameters, recipe


def _list_trainings(space: Space, count: int) -> Iterator[Training]:
    """Yield the baselines and `count` random recipes."""
    baselines = space.baselines()
    for number, recipe in enumerate(baselines):
        yield number, "baseline", params_of(space, recipe), recipe
    sampler = Sampler(space.suggest, name="random", seed=0)
    for number in range(len(baselines), len(baselines) + count):
        asked = sampler.ask(number, read_recipe)
        assert asked is not None  # only a grid is used up
        yield number, "random", params_of(space, asked[1]), asked[1]


def _prepare() -> None:
    """Make a process ready: the first training that needs a library would count the seconds of its import."""
    torch.set_num_threads(1)
    for library in LIBRARIES:
        import_module(library)


def _train(folder: Path, training: Training) -> Recording:
    number, origin, params, recipe = training
    own = folder / "training" / str(number)
    shutil.rmtree(own, ignore_errors=True)  # of an interrupted call
    own.mkdir(parents=True)
    times = [time.process_time()]

    def note(report: Report) -> bool:
        times.append(time.process_time())
        return True

    outcome = train(recipe, own, on_report=note)
    if outcome.state == "diverged":
        times.append(time.process_time())  # of the epoch in which it diverged
    seconds = [round(after - before, 3) for before, after in pairwise(times)]
    scores = [round(report.metrics["val_accuracy"], 5) for report in outcome.reports]
    test = score_test(own / "best.ckpt") if outcome.reports else None
    shutil.rmtree(own)
    return Recording(number, origin, params, recipe.epochs, scores, seconds, test)


def _cut_torn_line(file: Path) -> None:
    """Remove a last line that was not written to its end."""
    text = file.read_text() if file.exists() else ""
    if not text.endswith("\n") and text:
        file.write_text(text[: text.rfind("\n") + 1])


def read_recordings(folder: Path) -> list[Recording]:
    """Return the recordings of a folder, also while another process adds some."""
    file = folder / LINES
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [Recording(**json.loads(line)) for line in lines if line.endswith("\n")]


def write_set(recordings: list[Recording], space: Space, images: tuple[int, int], file: Path) -> None:
    """Write the recordings in the form that `search_quality.py` reads."""
    header = {"name": file.stem, "score": f"validation accuracy, {images[0]} photographs", "length": "epochs"}
    header |= {"seconds": "CPU seconds of each epoch", "test": f"test accuracy, {images[1]} photographs"}
    lines = [header | {"domains": list_domains(space)}, *map(asdict, recordings)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))

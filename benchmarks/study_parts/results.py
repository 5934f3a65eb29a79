"""The results of a study, as its stages have left them in a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.search_quality import Curves
from benchmarks.study_parts.photos import read_test
from benchmarks.study_parts.recording import load_study_space
from benchmarks.study_parts.searching import Run
from training.errors import UserError

SET, SEARCHES, VERDICTS = "photos.jsonl", "searches.json", "verdicts.json"
COMMAND = "python benchmarks/study.py --photos FOLDER --folder WORK"


@dataclass(frozen=True)
class Study:
    """The results of a study; `winner`, `ours`, `stock` and `autogluon` are None if those real searches were not run."""

    settings: dict[str, Any]
    backbone: dict[str, Any]
    curves: Curves
    baselines: int  # recorded baselines, the first of the curves
    runs: list[Run]
    verdicts: pd.DataFrame
    winner: dict[str, Any] | None
    ours: list[dict[str, Any]] | None
    stock: list[dict[str, Any]] | None
    autogluon: list[dict[str, Any]] | None
    classes: tuple[str, ...]  # those of the fine-tuning
    test_images: int
    image_size: int | str

    @classmethod
    def read(cls, folder: Path) -> Study:
        """Read the results.

        Raises:
            UserError: the folder has no replays of its present set.
        """

        def results(name: str) -> Any:
            if not (folder / name).exists():
                raise UserError(f"--folder {folder}: it has no {name} yet. Name the stages search and verdict too.")
            return json.loads((folder / name).read_text())

        labels = read_test(folder)[1]
        space = load_study_space(folder, results("settings.json")["overrides"])
        lines = [json.loads(line) for line in (folder / SET).read_text().splitlines()[1:]]
        return cls(
            settings=results("settings.json"),
            backbone=results("backbone.json"),
            curves=Curves.load(folder / SET),
            baselines=sum(line["origin"] == "baseline" for line in lines),
            runs=[Run(**run) for run in results(SEARCHES)],
            verdicts=pd.DataFrame(results(VERDICTS)),
            **{
                name: results(f"{name}.json") if (folder / f"{name}.json").exists() else None
                for name in ("winner", "ours", "stock", "autogluon")
            },
            classes=tuple(sorted(set(labels))),
            test_images=len(labels),
            image_size=space.baselines()[0].preprocessing.image_size,
        )

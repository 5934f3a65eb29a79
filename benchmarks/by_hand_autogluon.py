"""The study's search with AutoGluon, on the same photographs and backbone: `MultiModalPredictor` with its own ASHA.

    PYTHON benchmarks/by_hand_autogluon.py WORK [--trials 16] [--searches 3]

PYTHON is that of an environment of its own, because AutoGluon pins other versions of the libraries:
`uv venv AG && uv pip install -p AG/bin/python autogluon.multimodal 'timm>=1.0.20'` (its pin of timm has no
`test_resnet`). WORK is the folder of benchmarks/study.py. The search parameters are those of its space that AutoGluon
has; images are always changed by TrivialAugment, its default, because it cannot search this. Writes
WORK/autogluon.json, from which the study's page takes a row; a second call runs what is missing. Needs no network and no
GPU.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from autogluon.multimodal import MultiModalPredictor
from ray import tune
from safetensors.torch import load_file

MODEL, IMAGE_SIZE, EPOCHS, EPOCH_IMAGES = "test_resnet", 24, 12, 750  # as study_parts/space.yaml has them
WORKERS = 2
FIXED = {
    "model.names": ["timm_image"],
    "model.timm_image.image_size": IMAGE_SIZE,
    "model.timm_image.image_norm": "inception",  # as the backbone was trained
    "optim.max_epochs": EPOCHS,
    "optim.patience": EPOCHS,
    "optim.val_check_interval": 1.0,
    "optim.optim_type": "sgd",
    "env.precision": 32,
    "env.num_gpus": 0,
    "env.num_workers": 0,
    "env.num_workers_inference": 0,
    "env.strategy": "auto",
}


def save_backbone(weights: Path, folder: Path) -> None:
    """Write the study's backbone in the form of a local checkpoint of AutoGluon."""
    folder.mkdir()
    state = {name: value for name, value in load_file(weights).items() if not name.startswith("fc.")}
    torch.save(state, folder / "pytorch_model.bin")
    import timm

    model = timm.create_model(MODEL, num_classes=0)
    model.load_state_dict(state)  # a weight that is missing here would be random there
    image = {"mean": [0.5] * 3, "std": [0.5] * 3, "input_size": [3, IMAGE_SIZE, IMAGE_SIZE]}
    config = {"architecture": MODEL, "num_features": model.num_features, "pretrained_cfg": image}
    (folder / "config.json").write_text(json.dumps(config))


def search(work: Path, trials: int, seed: int) -> dict[str, object]:
    table = pd.read_csv(work / "photos.csv").rename(columns={"path": "image"})
    parts = {name: part.drop(columns="split").reset_index(drop=True) for name, part in table.groupby("split")}
    repeated = parts["train"].iloc[np.resize(np.arange(len(parts["train"])), EPOCH_IMAGES)].reset_index(drop=True)
    with tempfile.TemporaryDirectory() as folder:
        save_backbone(work / "backbone.safetensors", Path(folder, "backbone"))
        searched = {
            "model.timm_image.checkpoint_name": str(Path(folder, "backbone")),
            "data.mixup.turn_on": tune.choice([False, True]),
            "optim.label_smoothing": tune.choice([0.0, 0.1, 0.3]),
            "optim.lr": tune.loguniform(0.003, 0.3),
            "optim.lr_decay": tune.choice([1.0, 0.7]),
            "optim.weight_decay": tune.choice([0.0, 5e-4, 5e-3]),
            "env.per_gpu_batch_size": tune.choice([16, 32, 64]),
            "env.batch_size": 16,  # not more than the other, or gradients are accumulated
        }
        began = time.perf_counter()
        predictor = MultiModalPredictor(label="label", eval_metric="accuracy", path=str(Path(folder, "model")))
        predictor.fit(
            repeated,
            tuning_data=parts["val"],
            hyperparameters=FIXED | searched,
            hyperparameter_tune_kwargs={"num_trials": trials, "searcher": "bayes", "scheduler": "ASHA"},
            seed=seed,
        )
        seconds = time.perf_counter() - began
        scores = {
            name: predictor.evaluate(parts[part])["accuracy"] for name, part in (("best", "val"), ("test", "test"))
        }
    return {"trials": trials, "seconds": seconds, **scores}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--searches", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    kept = args.work / "autogluon.json"
    results = json.loads(kept.read_text()) if kept.exists() else []
    for seed in range(len(results), args.searches):
        results.append(search(args.work.resolve(), args.trials, seed))
        kept.write_text(json.dumps(results))


if __name__ == "__main__":
    main()

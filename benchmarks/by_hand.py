"""The demo's search written by hand, as in the documentation of Ray Tune and Lightning."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import lightning.pytorch as pl
import mlflow
import timm
import torch
from lightning.pytorch.loggers import MLFlowLogger
from ray import tune
from ray.tune.integration.pytorch_lightning import TuneReportCheckpointCallback
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.transforms import v2

from training.contract.specs import Backbone, Digits
from training.data.sources.load_data import load_data
from training.model.letters import letters_weights
from training.model.stages import stages_of


class Net(pl.LightningModule):
    def __init__(self, config: dict) -> None:
        super().__init__()
        self.config = config
        self.model = timm.create_model("test_resnet", num_classes=10)
        self.model.load_state_dict(letters_weights(Backbone(name="test_resnet", weights="letters")), strict=False)
        if config["level"] != "full":
            self.model.requires_grad_(False)
            stages = stages_of(self.model) if config["level"] == "most" else []
            for parameter in [p for stage in stages[len(stages) // 2 :] for p in stage]:
                parameter.requires_grad_(True)
            self.model.get_classifier().requires_grad_(True)
        self.loss = nn.CrossEntropyLoss(label_smoothing=config["smoothing"])
        self.mixup = v2.MixUp(alpha=config["mixup"], num_classes=10) if config["mixup"] else None

    def training_step(self, batch, index):
        x, y = self.mixup(*batch) if self.mixup else batch
        loss = self.loss(self.model(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        logits = self.model(x)
        self.log("val_loss", nn.functional.cross_entropy(logits, y))
        self.log("val_accuracy", (logits.argmax(1) == y).float().mean())

    def configure_optimizers(self):
        parameters = [p for p in self.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(parameters, lr=self.config["lr"], momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)]


def make_loaders(batch_size: int) -> tuple[DataLoader, DataLoader]:
    data = load_data(Digits(train_size=200))

    def tensors(part):
        images = torch.from_numpy(part.images[:]).permute(0, 3, 1, 2).float() / 255
        return TensorDataset((images - 0.3) / 0.32, torch.from_numpy(part.labels))

    return DataLoader(tensors(data.train), batch_size, shuffle=True), DataLoader(tensors(data.val), 256)


def train(config: dict) -> None:
    logger = MLFlowLogger("technique-search", tracking_uri=config["uri"], run_name=tune.get_context().get_trial_name())
    trainer = pl.Trainer(
        max_epochs=9,
        accelerator="cpu",
        devices=1,
        precision=config["precision"],
        accumulate_grad_batches=config["accumulate"],
        logger=logger,
        callbacks=[TuneReportCheckpointCallback({"val_accuracy": "val_accuracy"}, on="validation_end")],
        enable_progress_bar=False,
    )
    trainer.fit(Net(config), *make_loaders(config["batch_size"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reuse", action="store_true", help="reuse workers between trials")
    arguments = parser.parse_args()
    uri = f"sqlite:///{arguments.folder}/mlflow.db"
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("technique-search")  # otherwise seven of eight workers fail in the migration
    space = {
        "uri": uri,
        "level": tune.choice(["last", "most", "full"]),
        "smoothing": tune.uniform(0.0, 0.3),
        "mixup": tune.choice([0.0, 0.2, 1.0]),
        "lr": tune.loguniform(0.003, 0.3),
        "accumulate": tune.choice([1, 2]),
        "batch_size": tune.choice([16, 32, 64]),
        "precision": tune.choice(["32-true", "bf16-mixed"]),
    }
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="val_accuracy",
            mode="max",
            num_samples=16,
            search_alg=OptunaSearch(),
            scheduler=ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3),
            reuse_actors=arguments.reuse,
        ),
        run_config=tune.RunConfig(storage_path=str(arguments.folder / "ray"), verbose=1),
    )
    results = tuner.fit()
    runs = mlflow.search_runs(experiment_names=["technique-search"], output_format="list")
    (arguments.folder / "result.json").write_text(
        json.dumps(
            {
                "best": results.get_best_result().metrics["val_accuracy"],
                "epochs": sum(result.metrics.get("training_iteration", 0) for result in results),
                "statuses": [run.info.status for run in runs],
            }
        )
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    started = time.time()
    main()
    print(f"{time.time() - started:.0f} s")

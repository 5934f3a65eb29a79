"""A training of the demo written by hand, as in the documentation of Lightning."""

from __future__ import annotations

import lightning.pytorch as pl
import timm
import torch
from lightning.pytorch.loggers import MLFlowLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset
from torchvision.transforms import v2

from training.contract.specs import Backbone
from training.data.load_data import load_data
from training.data.sources.digits import Digits
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


class Changed(Dataset):
    """Images of another data set, each with its own random shift, rotation and enlargement."""

    def __init__(self, images: Dataset) -> None:
        self.images = images
        affine = v2.RandomAffine(
            15, translate=(0.1, 0.1), scale=(1.0, 1.1), interpolation=v2.InterpolationMode.BILINEAR
        )
        self.change = v2.RandomApply([affine], p=0.8)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index):
        image, label = self.images[index]
        return self.change(image), label


def make_loaders(batch_size: int, change: bool) -> tuple[DataLoader, DataLoader]:
    data = load_data(Digits(train_size=20))

    def tensors(part):
        images = torch.from_numpy(part.images[:]).permute(0, 3, 1, 2).float() / 255
        return TensorDataset((images - 0.3) / 0.32, torch.from_numpy(part.labels))

    train = Changed(tensors(data.train)) if change else tensors(data.train)
    sampler = RandomSampler(train, num_samples=384)
    return DataLoader(train, batch_size, sampler=sampler), DataLoader(tensors(data.val), 256)


def fit(config: dict, uri: str, run_name: str, callbacks: list[pl.Callback]) -> None:
    """Train one configuration, with a run of its own in MLflow."""
    trainer = pl.Trainer(
        max_epochs=9,
        accelerator="cpu",
        devices=1,
        precision=config["precision"],
        logger=MLFlowLogger("technique-search", tracking_uri=uri, run_name=run_name),
        callbacks=callbacks,
        enable_progress_bar=False,
    )
    trainer.fit(Net(config), *make_loaders(config["batch_size"], config["changes"]))

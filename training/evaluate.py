"""Load a trained model into its plain architecture, and compute its logits for one part of the data."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from training.data.files.images import ImageData, ImagePart
from training.data.load_data import load_data
from training.data.pipelines.loaders import make_eval_loader
from training.errors import UserError
from training.loop.checkpoint import Saved, put_back, read_checkpoint
from training.model.backbones import build_bare
from training.model.build import build_model
from training.model.ensemble import Ensemble, count_members
from training.recipe import RECORDED, Recipe


def restore_model(recipe: Recipe, weights: dict[str, torch.Tensor], class_count: int) -> nn.Module:
    """Return the trained model in eval mode and float32, as timm or torchvision builds it.

    Techniques that belong to the model, such as `attention_pooling`, are on in it; the weights of several make an `Ensemble`.
    """
    model = _rebuild(recipe, class_count)
    if f"0.{next(iter(model.state_dict()))}" in weights:
        model = Ensemble([_rebuild(recipe, class_count) for _ in range(count_members(weights))])
    model.load_state_dict(weights)
    return model.eval()


def _rebuild(recipe: Recipe, class_count: int) -> nn.Module:
    image_size = recipe.evaluation_preprocessing.side
    model = build_bare(recipe.backbone, class_count, image_size)
    for technique in recipe.techniques():
        technique.rebuild(model, class_count, image_size)
    return model


def read_trained(path: Path) -> Saved:
    """Read a `best.ckpt` with all its weights: for frozen ones that it left out, the backbone is built again."""
    saved = read_checkpoint(path)
    if saved.get("given"):
        recipe = Recipe.model_validate(saved["recipe"], context=RECORDED)
        with torch.random.fork_rng(devices=[]):  # the new head draws numbers
            built = build_model(recipe.backbone, len(saved["classes"]), recipe.preprocessing.side)
        put_back(saved, built.state_dict())
    return saved


def load_same_data(recipe: Recipe, classes: tuple[str, ...]) -> ImageData:
    """Load the data that a model was trained on, with its classes in the order of the model's."""
    data = load_data(recipe.data)
    if changed := ", ".join(sorted(set(data.classes) ^ set(classes))):
        raise UserError(
            f"data.name={recipe.data.name}: its classes are not those of the training any more ({changed} changed). Restore "
            "the class folders, or train again."
        )
    return data.in_order(classes)


@torch.inference_mode()
def predict_part(
    model: nn.Module, part: ImagePart, recipe: Recipe, *, device: str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Predict a part of the data, preprocessed as in validation.

    Returns:
        Logits (N, classes) and labels (N,) on the CPU, in the order of the part.
    """
    model.to(device)
    loader = make_eval_loader(part, recipe, workers=0, device=device)
    batches = [(model(images.to(device)).float().cpu(), labels.cpu()) for images, labels in loader]
    logits, labels = (torch.cat(column) for column in zip(*batches, strict=True))
    return logits, labels

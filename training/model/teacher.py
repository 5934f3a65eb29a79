"""A trained model from which another training learns, read from a checkpoint or an export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from ruamel.yaml import YAML
from torch import nn
from torch.nn import functional as F

from training.contract.specs import Preprocessing
from training.errors import UserError
from training.evaluate import read_trained, restore_model
from training.process.text_files import read_json
from training.recipe import RECORDED, Recipe

CHECKPOINT, EXPORT = "best.ckpt", "model.safetensors"


class TrainedTeacher:
    """Predicts the images of a training in eval mode, without gradients. It is no module, so no state dict has it.

    Args:
        model: The teacher in eval mode, from images as its own recipe prepares them to logits (N, classes).
        own: Its preprocessing.
        given: That of the training, whose images it gets.
        order: The place of each class of the training among the teacher's logits.
    """

    def __init__(self, model: nn.Module, own: Preprocessing, given: Preprocessing, order: Sequence[int]) -> None:
        mean, std, own_mean, own_std = map(np.array, (given.mean, given.std, own.mean, own.std))
        self.model, self.side = model.requires_grad_(False), own.side
        self.scale = torch.from_numpy(std / own_std).float()[:, None, None]
        self.bias = torch.from_numpy((mean - own_mean) / own_std).float()[:, None, None]
        self.order = torch.tensor(order)
        self.is_plain = bool((self.scale == 1).all() and (self.bias == 0).all())

    def to(self, device: torch.device, dtype: torch.dtype) -> None:
        """Move everything to a device, with weights of the type of the student's."""
        self.model.to(device, dtype)
        self.scale, self.bias = self.scale.to(device, dtype), self.bias.to(device, dtype)
        self.order = self.order.to(device)

    @torch.no_grad()
    def predict(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (N, classes) in the order of the student's classes, for its images (N, 3, side, side)."""
        if not self.is_plain:
            images = images * self.scale + self.bias
        if images.shape[-1] != self.side:
            images = F.interpolate(images, (self.side, self.side), mode="bilinear", antialias=True)
        return self.model(images)[:, self.order]

    def __deepcopy__(self, _: object) -> TrainedTeacher:
        return self  # it never changes, so a copy of a training shares it


def find_file(path: Path) -> Path:
    """Return the file of weights that a teacher's path means: itself, or one in that folder."""
    weights_file = next((file for file in (path / CHECKPOINT, path / EXPORT, path) if file.is_file()), None)
    if weights_file is None:
        raise UserError(
            f"distillation.teacher={path}: neither a {CHECKPOINT} nor an export with weights. Make one: sweep export NAME."
        )
    return weights_file


def read_teacher(path: str, student: Recipe, classes: tuple[str, ...]) -> TrainedTeacher:
    """Build a teacher, on the CPU. The random states of the process stay as they are.

    Args:
        path: A `best.ckpt`, the folder of a trial, or the folder of an export.
        student: The resolved recipe of the training.
        classes: The names of its classes.
    """
    field = f"distillation.teacher={path}"
    recipe, weights, known, trained_on = _read(find_file(Path(path)), field)
    if set(known) != set(classes):
        other = ", ".join(sorted(set(known) ^ set(classes))[:3])
        raise UserError(f"{field}: its classes are not those of the data ({other}). Name one for the same classes.")
    # It may have been trained on the student's validation or test images.
    for name in ("split_seed", "split_test"):
        theirs, own = (f"data.{name}={getattr(each.data, name)}".lower() for each in (recipe, student))
        if recipe.data.name == student.data.name and theirs != own:
            raise UserError(
                f"{field} was trained with {theirs}, so on images that {own} validates or tests on. Use {theirs}."
            )
    if trained_on != "train":
        raise UserError(
            f"{field} was trained on the validation images too. Export a trial that was not: sweep export NAME --trial 0000."
        )
    with torch.random.fork_rng(devices=[]):
        model = restore_model(recipe, weights, len(known))
    order = [known.index(name) for name in classes]
    return TrainedTeacher(model, recipe.evaluation_preprocessing, student.preprocessing, order)


def _read(file: Path, field: str) -> tuple[Recipe, dict[str, torch.Tensor], list[str], str]:
    """Return the recipe, the weights, the names of the classes, and the parts that it was trained on."""
    if file.suffix != ".safetensors":
        saved = read_trained(file)
        recipe = Recipe.model_validate(saved["recipe"], context=RECORDED)
        return recipe, saved["state_dict"], list(saved["classes"]), "train"
    from safetensors.torch import load_file

    try:
        facts = read_json(file.parent / "summary.json")
        written = YAML(typ="safe").load(file.parent / "recipe.yaml")
        recipe = Recipe.model_validate(written["recipe"], context=RECORDED)
        return recipe, load_file(file), list(facts["classes"]), facts["trained_on"]
    except UserError:
        raise
    except Exception as error:  # noqa: BLE001 - each reader raises different errors for a damaged file
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"{field}: not a complete export ({reason}). Make it again: sweep export NAME.") from None

"""Export of one trial: its complete recipe, its best weights, a summary with its scores, and a model card."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.export.hub import CARD, CONFIG, FRONT, LOADING, fits_hub, write_config
from analysis.export.model_card import describe
from analysis.export.summary import FILES, FORMAT, Form, Provenance, Summary, summarise
from spaces.load import dump_recipe, load_recipe
from training.errors import UserError
from training.process.text_files import read_json
from training.process.writable import check_folder, complete_files
from training.recipe import Recipe

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class Exported:
    """An export that was read back; `model` is in eval mode."""

    folder: Path
    recipe: Recipe
    summary: Summary
    model: nn.Module

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""
        return tuple(self.summary["classes"])


def check_out(out: Path) -> None:
    """Check that an export can be written to `out`, and leave nothing there."""
    check_folder("--out", out)
    if not out.is_dir() or not any(out.iterdir()):
        return
    recipe = out / "recipe.yaml"
    if not recipe.exists():
        raise UserError(f"--out={out}: the folder has other files. Name a new folder.")
    if not _is_written_here(recipe):
        raise UserError(f"--out={out}: {recipe} is not from an export, and would be overwritten. Name a new folder.")


def _is_written_here(recipe: Path) -> bool:
    """Whether an export or a training wrote a recipe's file: the files beside it tell, or its own text."""
    names = {path.name for path in recipe.parent.iterdir()}
    if CARD in names and not (recipe.parent / CARD).read_text(encoding="utf-8", errors="replace").startswith(FRONT):
        return False
    if "last.ckpt" in names or len(names & {FILES["torch"], "summary.json", "MODEL_CARD.md"}) > 1:
        return True
    try:
        return names == {"recipe.yaml"} and recipe.read_text(encoding="utf-8") == dump_recipe(load_recipe(recipe))
    except (OSError, ValueError, UserError):
        return False


def export_recipe(recipe: Recipe, out: Path) -> None:
    """Write `recipe.yaml` into `out`."""
    check_out(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "recipe.yaml").write_text(dump_recipe(recipe), encoding="utf-8")


def export_model(recipe: Recipe, state: Mapping[str, torch.Tensor], source: Provenance, out: Path) -> None:
    """Write `recipe.yaml`, `model.safetensors`, `summary.json` and `MODEL_CARD.md` into `out`.

    The export of a timm model has `config.json` and `README.md` too, which make it a model folder of the Hugging Face hub.
    The recipe is resolved, so no field is `auto`; `state` has the weights of epoch `source.best_epoch`.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    check_out(out)
    summary = summarise(recipe, source)
    if recipe.snapshots.is_on or "ensemble" in source:
        from training.model.ensemble import count_members

        summary["members"] = count_members(state)
    if recipe.attention_pooling.is_on:
        summary["attention_pooling"] = recipe.attention_pooling.heads
    with complete_files("--out", out) as folder:
        export_recipe(recipe, folder)
        try:
            # Tied weights share memory, and safetensors refuses tensors that do.
            plain = {name: value.clone().contiguous() for name, value in state.items()}
            save_file(plain, folder / FILES["torch"], {"format": "pt"})  # without it, transformers refuses the file
        except SafetensorError as error:
            raise OSError(str(error)) from None
        if fits_hub(recipe, summary):
            write_config(recipe, summary, folder / CONFIG)
        write_summary(recipe, summary, folder)
        for name in (FILES["onnx"], FILES["int8"], CONFIG, CARD):  # those of an earlier export
            (out / name).unlink(missing_ok=True)


def write_summary(recipe: Recipe, summary: Summary, out: Path) -> None:
    """Write `summary.json`, and the model card with the same facts in words; for the hub also as its README.md."""
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    (out / "MODEL_CARD.md").write_text(describe(recipe, summary), encoding="utf-8")
    if fits_hub(recipe, summary):
        (out / CARD).write_text(FRONT + describe(recipe, summary, LOADING), encoding="utf-8")


def check_export(folder: Path, form: Form = "torch") -> None:
    """Check that a folder has the files of an export in one form, without reading them."""
    model = folder / FILES[form]
    for path in (folder / "recipe.yaml", folder / "summary.json", *([model] if form == "torch" else [])):
        if not os.path.isfile(path):
            raise UserError(
                f"{folder}: not an export with weights, as {path.name} is missing. Make one: sweep export NAME."
            )
    if not os.path.isfile(model):
        raise UserError(
            f"--model={form}: {folder} has no {model.name}. Make it: sweep export NAME --{form}, or leave --model out."
        )


def read_export(folder: Path) -> Exported:
    """Read an export and build its model; nothing is unpickled."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from training.evaluate import restore_model

    recipe, summary = read_facts(folder)
    try:
        weights = load_file(path := folder / FILES["torch"])
    except (ValueError, SafetensorError) as error:
        raise _damaged(folder, error) from None
    try:
        model = restore_model(recipe, weights, len(summary["classes"]))
    except RuntimeError:
        raise UserError(f"{folder}: {path.name} does not belong to its recipe.yaml. Export it again.") from None
    return Exported(folder, recipe, summary, model)


def read_facts(folder: Path, form: Form = "torch") -> tuple[Recipe, Summary]:
    """Read the recipe and the summary of an export that has the given form."""
    check_export(folder, form)
    try:
        summary = read_json(folder / "summary.json")
    except (OSError, ValueError) as error:
        raise _damaged(folder, error) from None
    _check_summary(summary, folder / "summary.json")
    recipe = load_recipe(folder / "recipe.yaml")
    if not isinstance(recipe.preprocessing.image_size, int):
        raise UserError(f"{folder}/recipe.yaml: an export cannot have preprocessing.image_size=auto. Export it again.")
    return recipe, summary


def read_sweep_id(folder: Path) -> str | None:
    """Return the id of the sweep that a folder has an export of; None if there is none, or it does not say."""
    try:
        summary = read_json(folder / "summary.json")
    except (OSError, ValueError):
        return None
    return summary.get("sweep_id") if isinstance(summary, dict) else None


def _damaged(folder: Path, error: Exception) -> UserError:
    return UserError(f"{folder}: the export is damaged ({error}). Make it again: sweep export NAME.")


def _check_summary(summary: object, path: Path) -> None:
    if not isinstance(summary, dict):
        raise UserError(f"{path}: the export is damaged (it is not a mapping). Make it again: sweep export NAME.")
    if summary.get("format") != FORMAT:
        raise UserError(
            f"{path}: format {summary.get('format')} is not {FORMAT}, which this version reads. Export again."
        )
    classes = summary.get("classes")
    if not (isinstance(classes, list) and len(classes) > 1 and all(isinstance(name, str) for name in classes)):
        raise UserError(f"{path}: its classes are not a list of two names or more. Make it again: sweep export NAME.")

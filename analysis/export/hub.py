"""A timm export as a model folder of the Hugging Face hub: `config.json` and a card beside the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analysis.export.summary import Summary
from training.errors import UserError
from training.recipe import Recipe

CONFIG, CARD = "config.json", "README.md"
FRONT = "---\nlibrary_name: timm\npipeline_tag: image-classification\ntags: [image-classification, timm]\n---\n\n"
LOADING = """```python
import timm

model = timm.create_model("local-dir:.", pretrained=True).eval()
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
```"""


def fits_hub(recipe: Recipe) -> bool:
    """Whether timm alone can load the export: one model of timm with its own head, not an ensemble of several."""
    return recipe.backbone.source == "timm" and not (recipe.snapshots.is_on or recipe.attention_pooling.is_on)


def write_config(recipe: Recipe, summary: Summary, path: Path) -> None:
    """Write the architecture, its arguments, the preprocessing and the names of the classes, as timm reads them."""
    import torch
    from timm.models._hub import save_config_for_hf

    from training.model.backbones import build_bare

    with torch.random.fork_rng():
        model = build_bare(recipe.backbone, len(summary["classes"]), summary["input_size"][1])
    preprocessing: dict[str, object] = {
        "input_size": tuple(summary["input_size"]),
        "mean": tuple(summary["mean"]),
        "std": tuple(summary["std"]),
        "crop_pct": summary["crop"],
        "crop_mode": summary["crop_mode"],
        "interpolation": summary["interpolation"],
    }
    save_config_for_hf(
        model,
        str(path),
        model_config={"label_names": summary["classes"]},
        model_args=summary["backbone"]["arguments"],
        data_config=preprocessing,
    )


def check_repository(repository: str, recipe: Recipe) -> None:
    """Check that a recipe's export can be a repository of that name."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repository)
    except HFValidationError:
        raise UserError(
            f"--push-to-hub={repository}: this is not the name of a repository. Use USER/NAME, with letters, digits, -, _ and "
            "dots."
        ) from None
    if not fits_hub(recipe):
        description = "an ensemble" if recipe.snapshots.is_on else f"a model of {recipe.backbone.source}"
        description = "a model with attention_pooling" if recipe.attention_pooling.is_on else description
        raise UserError(
            f"--push-to-hub={repository}: the trial is {description}, and the hub loads single models of timm. "
            "Leave --push-to-hub out."
        )


def create_repository(repository: str) -> str:
    """Create a private repository, if there is none of that name; returns its address."""
    from huggingface_hub import HfApi

    with _explained(repository):
        return str(HfApi().create_repo(repository, private=True, exist_ok=True))


def push_export(folder: Path, repository: str) -> None:
    """Upload the files of an export to a repository."""
    from huggingface_hub import HfApi

    with _explained(repository):
        HfApi().upload_folder(repo_id=repository, folder_path=folder, commit_message="Add the exported model")


@contextmanager
def _explained(repository: str) -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError, HTTPError

    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise UserError(
            f"--push-to-hub={repository}: the Hugging Face hub refuses it (status {status}). Log in with `hf auth login`, and "
            "name a repository that you can write to."
        ) from None
    except (HTTPError, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"--push-to-hub={repository}: the Hugging Face hub cannot be reached ({reason}). Export without it, and push the "
            "folder where there is a network: hf upload REPO FOLDER."
        ) from None

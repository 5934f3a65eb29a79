"""A timm export as a model folder of the Hugging Face hub: `config.json` and a card beside the weights."""

from __future__ import annotations

from pathlib import Path

from analysis.export.summary import Summary
from training.recipe import Recipe

CONFIG, CARD = "config.json", "README.md"
FRONT = "---\nlibrary_name: timm\npipeline_tag: image-classification\ntags: [image-classification, timm]\n---\n\n"
LOADING = """```python
import timm

model = timm.create_model("local-dir:.", pretrained=True).eval()
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
```"""


def fits_hub(recipe: Recipe, summary: Summary) -> bool:
    """Whether timm alone can load the export: one model of timm with its own head, not an ensemble of several."""
    return recipe.backbone.source == "timm" and not ("members" in summary or recipe.attention_pooling.is_on)


def write_config(recipe: Recipe, summary: Summary, path: Path) -> None:
    """Write the architecture, its arguments, the preprocessing and the names of the classes, as timm reads them."""
    import torch
    from timm.models._hub import save_config_for_hf

    from training.model.backbones import build_bare

    with torch.random.fork_rng():
        model = build_bare(recipe.backbone, len(summary["classes"]), summary["input_size"][1])
    save_config_for_hf(
        model,
        str(path),
        model_config={"label_names": summary["classes"]},
        model_args=summary["backbone"]["arguments"],
        data_config={
            "input_size": tuple(summary["input_size"]),
            "mean": tuple(summary["mean"]),
            "std": tuple(summary["std"]),
            "crop_pct": summary["crop"],
            "crop_mode": summary["crop_mode"],
            "interpolation": summary["interpolation"],
        },
    )

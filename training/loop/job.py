"""The description of one training that all its processes receive."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.loop.epoch_report import Kept
from training.plugins import list_sources, load_sources
from training.process.resources import Resources
from training.recipe import Recipe, read_recipe


@dataclass(frozen=True)
class TrainingJob:
    """All that the processes of one training have in common."""

    recipe: Recipe
    folder: Path
    metric: str
    resources: Resources  # for each process
    release: bool
    score: Kept = "best"
    cache: Path | None = None
    val_images: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return plain values, from which another process builds the same job."""
        # The first process alone uses the cache.
        plain = {
            "recipe": self.recipe.model_dump(),
            "folder": str(self.folder),
            "cache": None,
            "sources": list_sources(),
        }
        return {**asdict(self), **plain}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TrainingJob:
        load_sources(values.pop("sources"))
        read = {"recipe": read_recipe(values["recipe"]), "folder": Path(values["folder"])}
        return cls(**{**values, **read, "resources": Resources(**values["resources"])})

"""The description of one training that all its processes receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from training.loop.epoch_report import Kept
from training.plugins import list_sources, load_sources
from training.process.resources import Resources
from training.recipe import Recipe


@dataclass(frozen=True)
class TrainingJob:
    """All that the processes of one training have in common."""

    recipe: Recipe
    folder: Path
    metric: str
    resources: Resources  # for each process
    release: bool
    score: Kept = "best"
    val_images: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return plain values, from which another process builds the same job."""
        return {"sources": list_sources(), **TypeAdapter(TrainingJob).dump_python(self, mode="json")}

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> TrainingJob:
        load_sources(TypeAdapter(list[dict[str, str]]).validate_python(values["sources"]))
        return TypeAdapter(TrainingJob).validate_python(values)

"""The kind of data in a folder."""

from __future__ import annotations

import os
from pathlib import Path

from training.data.sources.packed.hub import HUB


def kind_of(folder: str) -> str:
    """Return the kind of data in a folder, by the files in it and in its subfolders."""
    if folder.startswith(HUB):
        return "parquet"
    kinds = {".parquet": "parquet", ".arrow": "parquet", ".tar": "webdataset"}
    path = Path(os.path.expanduser(folder))
    names = (found.suffix.lower() for pattern in ("*", "*/*") for found in path.glob(pattern))
    return next((kinds[ending] for ending in names if ending in kinds), "image_folder")

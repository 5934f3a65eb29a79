"""Write a checkpoint; read one, and refuse a damaged one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from training.errors import UserError
from training.process.text_files import refuse_irregular

Saved = dict[str, Any]  # the content of a checkpoint, by key
BEST = ("state_dict", "recipe", "classes", "epoch")  # the keys of `best.ckpt`


def write_checkpoint(saved: Saved, path: Path) -> None:
    """Write a checkpoint into a file. An interrupted write leaves a part of it, so the caller renames a complete file.

    Raises:
        OSError: the disk is full, for example. From a path instead of an open file, torch raises a RuntimeError then.
    """
    with path.open("wb") as file:
        torch.save(saved, file)


def read_checkpoint(path: Path, keys: Sequence[str] = BEST, mmap: bool = False) -> Saved:
    """Read a checkpoint without unpickling code. `keys` must be in it; the default is those of `best.ckpt`.

    `best.ckpt` contains the weights as `state_dict`, the resolved `recipe`, the names of the `classes` and the `epoch`, and,
    unless these are many or it is older, as `validation` the `labels` (N,) and the `logits` (N, classes) of the images there.
    """
    try:
        refuse_irregular(path)
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - torch raises a dozen types for a file that is truncated or of another kind
        reason = (str(error).strip() or type(error).__name__).split("\n")[0].split(". ")[0].rstrip(".")
        raise UserError(f"{path}: the checkpoint is damaged ({reason}).") from None
    if missing := [key for key in keys if not isinstance(saved, dict) or key not in saved]:
        raise UserError(f"{path}: the checkpoint is damaged (it has no {missing[0]}).")
    return saved

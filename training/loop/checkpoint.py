"""Write a checkpoint, without the frozen weights that its backbone has anyway; read one, and refuse a damaged one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from training.errors import UserError
from training.model.stages import head_of
from training.process.text_files import refuse_irregular

if TYPE_CHECKING:
    from training.contract.specs import Backbone

Saved = dict[str, Any]  # the content of a checkpoint, by key
Given = dict[torch.Tensor, tuple[str, int]]  # weights as they are built: the name of each, and its hash
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

    `best.ckpt` contains the weights as `state_dict`, the resolved `recipe`, the names of the `classes` and the `epoch`. It may
    have left out frozen weights: `training.evaluate.read_trained` puts them back.
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


def list_given(model: nn.Module, backbone: Backbone) -> Given:
    """Return the weights of layers outside of the head with which a backbone is built, if it can be built so again."""
    if backbone.weights in ("none", "letters") or backbone.source == "own" or vars(model).get("missing_weights"):
        return {}  # perhaps not bit by bit
    head = set(head_of(model).parameters())
    layers = [(name, each.weight) for name, each in model.named_modules() if isinstance(each, nn.Linear | nn.Conv2d)]
    return {weight: (f"{name}.weight", _hash(weight)) for name, weight in layers if weight not in head}


def leave_out(saved: Saved, given: Mapping[str, int]) -> None:
    """Take weights that are still as given out of the `state_dict`, and note their hashes."""
    weights = saved["state_dict"]
    same = {name: known for name, known in given.items() if name in weights and _hash(weights[name]) == known}
    for name in same:
        del weights[name]
    if same:
        saved["given"] = same


def put_back(saved: Saved, built: Mapping[str, torch.Tensor]) -> None:
    """Put what was left out, if anything, back into the `state_dict`, from a model that is built in the same way."""
    for name, known in saved.get("given", {}).items():
        if name not in built or _hash(built[name]) != known:
            raise UserError(
                f"The weights of the backbone are not those with which the checkpoint was written ({name} differs). Restore "
                "them, or train again."
            )
        saved["state_dict"][name] = built[name]


def _hash(weight: torch.Tensor) -> int:
    """Return a number that depends on each bit of a weight of 32 bits, but not on its memory layout; −1 for other ones."""
    return int(torch.hash_tensor(weight.detach()).item()) if weight.dtype == torch.float32 else -1

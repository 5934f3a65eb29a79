"""Read a state dict from a file, say what is wrong with one, and find the names that training tools have put in front."""

from __future__ import annotations

import re
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import cast

import torch

from training.errors import UserError, first_line
from training.process.text_files import refuse_irregular

State = dict[str, torch.Tensor]

# Under which keys checkpoints hold a state dict, the plain weights before averaged ones: ours and Lightning's, timm's,
# MMPretrain's, DINO's and those of common training scripts.
KEYS = (
    *("state_dict", "model", "model_state_dict", "model_state", "net", "network", "module", "weights", "params"),
    *("state_dict_ema", "model_ema", "ema_state_dict", "ema", "teacher", "student"),
)
# torch puts them anywhere in a name
WRAPPERS = re.compile(r"(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
DEPTH = 4  # of keys in keys, and of names in front of a model's own


def read_weights(path: Path, field: str) -> State:
    """Read a state dict from a safetensors or torch file, without unpickling code."""
    if not path.is_file():
        reason = "this is not a file" if path.exists() else "no such file"
        raise UserError(f"{field}={path}: {reason}. Give none, pretrained, letters, or a file of weights.")
    try:
        return _find_state(_read(path))
    except ValueError as error:
        raise UserError(f"{field}={path}: not a file of weights ({error}). Give safetensors or a state dict.") from None


def read_cached(path: Path, way_out: str) -> State:
    """Read the weights that a library has stored on this machine, as they are: the library may change their names."""
    try:
        state = _read(path)
        _find_state(state)
    except ValueError as error:
        raise UserError(f"backbone.weights=pretrained: {path} is damaged ({error}). {way_out}") from None
    return dict(cast(State, state))


def _find_state(state: object) -> State:
    """Return the tensors by their names, without the names of wrappers of torch.

    Raises:
        ValueError: there are none.
    """
    for _ in range(DEPTH):
        values = [state.get(key) for key in KEYS] if isinstance(state, Mapping) else []
        state = next((value for value in values if isinstance(value, Mapping)), None) or state
    if not isinstance(state, Mapping):
        raise ValueError(f"it holds a {type(state).__name__}, not a state dict")
    tensors = {WRAPPERS.sub("", str(name)): value for name, value in state.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise ValueError("it holds no tensors")
    return tensors


def _read(path: Path) -> object:
    """Return the content of a file.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        refuse_irregular(path)
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        with torch.serialization.safe_globals([Namespace]):  # timm's train.py saves its arguments beside the weights
            return torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - each reader raises different errors for a file of another kind
        raise ValueError(_describe(path, error)) from None


def _describe(path: Path, error: Exception) -> str:
    """Return in half a sentence why a file cannot be read, by its first bytes where they say more than the reader."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    with path.open("rb") as file:
        start = file.read(512).lstrip()
    if not start:
        return "it is empty"
    if start.startswith(b"version https://git-lfs"):
        return "it is a pointer of Git LFS: fetch the file itself with git lfs pull"
    if start.startswith((b"<", b"{\n", b'{"error')):
        return "it is a page or a message of a server, not what was asked for"
    # safetensors begin with the length of a header in JSON, torch's files with the mark of a zip archive or of a pickle.
    if path.suffix != ".safetensors" and start[8:9] == b"{":
        return "its content is that of safetensors: name it so"
    if path.suffix == ".safetensors" and start.startswith((b"PK", b"\x80")):
        return "its content is that of a torch file: name it .pth"
    if "Weights only load failed" in str(error) and start.startswith((b"PK", b"\x80")):
        return "it holds Python objects, such as a whole model: save model.state_dict() alone"
    reason = (first_line(error) or type(error).__name__).rpartition("header: ")[2].split(". ")[0].rstrip(".")
    return f"it is cut off or of another kind, with {path.stat().st_size:,} bytes: {reason}"


def match_names(weights: State, wanted: Collection[str]) -> State:
    """Return the weights by the names of a model: those in front, such as `module.` and `model.`, are removed.

    DistributedDataParallel, Lightning and training scripts put the name of an attribute in front of the model's own names.
    """
    found: Counter[str] = Counter({"": sum(name in wanted for name in weights)})
    for name in weights:
        parts = name.split(".")
        for count in range(1, min(DEPTH, len(parts) - 1) + 1):
            if ".".join(parts[count:]) in wanted:
                found[".".join(parts[:count]) + "."] += 1
    front = max(found, key=lambda prefix: (found[prefix], -len(prefix)))
    if not found[front]:  # old names of timm, which it renames itself
        front = _common_front(weights)
    return {name.removeprefix(front): value for name, value in weights.items() if name.startswith(front)}


def _common_front(weights: State) -> str:
    """Return the usual names that stand in front of every name."""
    front = ""
    while usual := [word for word in ("module.", "model.") if all(name.startswith(front + word) for name in weights)]:
        front += usual[0]
    return front

"""Read weights from a file, or from the hub or the cache of a library. Without a network this fails at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import torch

from training.contract.specs import Backbone, InputConfig
from training.errors import UserError
from training.model.own_backbones import own_pretrained

if TYPE_CHECKING:
    from timm.models import PretrainedCfg
    from torchvision.models import WeightsEnum

CONNECT_SECONDS = 5.0


def read_weights(path: Path, field: str) -> dict[str, torch.Tensor]:
    """Read a state dict from a safetensors or torch file, without unpickling code.

    Raises:
        UserError: the file does not exist, or contains no weights. The message starts with `field`.
    """
    if not path.is_file():
        raise UserError(f"{field}={path}: no such file. Give none, pretrained, letters, or a file of weights.")
    try:
        state = _read(path)
    except Exception as error:  # noqa: BLE001 - each reader raises different errors for a file of another kind
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"{field}={path}: not a file of weights ({reason}). Give safetensors or a state dict."
        ) from None
    for key in ("state_dict", "model"):  # our checkpoints, Lightning's and others contain the state dict under a key
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict):
        raise UserError(
            f"{field}={path}: not a file of weights (it holds a {type(state).__name__}). Give a state dict."
        )
    return {name.removeprefix("model."): value for name, value in state.items() if isinstance(value, torch.Tensor)}


def _read(path: Path) -> Any:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def fetch_early(backbone: Backbone, say: Callable[[str], None]) -> None:
    """Fetch or check the weights before a sweep or training starts. `say` is called before a download.

    Raises:
        UserError: the weights are not available.
    """
    if backbone.weights == "pretrained":
        if backbone.source != "own" and _is_cached(backbone):
            return
        say(f"fetching the pretrained weights of {backbone.source}'s {backbone.name}")
        fetch_pretrained(backbone)
    elif backbone.weights not in ("none", "letters"):
        read_weights(Path(backbone.weights), "backbone.weights")


def locate_weights(backbone: Backbone) -> str:
    """Return a phrase that says where the weights would come from; nothing is fetched.

    Raises:
        UserError: the weights are not available.
    """
    if backbone.weights == "none":
        return "random weights"
    if backbone.weights == "letters":
        return "the pretraining on rendered letters"
    if backbone.weights != "pretrained":
        read_weights(Path(backbone.weights), "backbone.weights")
        return f"the file {backbone.weights}"
    if backbone.source == "own":
        own_pretrained(backbone)
        return "the weights of its own file"
    if _is_cached(backbone):
        return "pretrained weights in the cache"
    address = _address_of(backbone)
    _reach(address, backbone)
    return f"pretrained weights, to be fetched from {urlparse(address).hostname}"


def _address_of(backbone: Backbone) -> str:
    from huggingface_hub import constants

    if backbone.source == "torchvision":
        return str(_torchvision_weights(backbone).url)
    config = _timm_config(backbone)
    return str(constants.ENDPOINT if config.hf_hub_id else config.url)


def _is_cached(backbone: Backbone) -> bool:
    if backbone.source == "torchvision":
        return _hub_file(_torchvision_weights(backbone).url).is_file()
    config = _timm_config(backbone)
    return bool(_cached_by_hub(config)) if config.hf_hub_id else _hub_file(str(config.url)).is_file()


def fetch_pretrained(backbone: Backbone) -> dict[str, torch.Tensor]:
    """Return the weights that the backbone's library publishes, from its cache or its server.

    Raises:
        UserError: the library has none, or they are not cached and the server cannot be reached.
    """
    if backbone.source == "own":
        return own_pretrained(backbone)
    return _from_timm(backbone) if backbone.source == "timm" else _from_torchvision(backbone)


def pretrained_config(backbone: Backbone) -> InputConfig | None:
    """Return the input that the pretrained weights were trained with; None without pretrained weights.

    Raises:
        UserError: the library publishes no weights for this backbone.
    """
    if backbone.weights != "pretrained" or backbone.source == "own":
        return None
    if backbone.source == "timm":
        import timm
        from timm.data import resolve_data_config

        config = timm.get_pretrained_cfg(backbone.name)
        if config is None:
            raise _no_weights(backbone)
        return resolve_data_config(pretrained_cfg=config.to_dict())
    preset = _torchvision_weights(backbone).transforms()
    return {
        "input_size": (3, preset.crop_size[0], preset.crop_size[0]),
        "mean": tuple(preset.mean),
        "std": tuple(preset.std),
        "crop_pct": preset.crop_size[0] / preset.resize_size[0],
        "interpolation": preset.interpolation.value,
    }


def _from_timm(backbone: Backbone) -> dict[str, torch.Tensor]:
    from huggingface_hub import constants
    from timm.models import load_state_dict_from_hf
    from torch.hub import load_state_dict_from_url

    config = _timm_config(backbone)
    if not config.hf_hub_id:
        if not _hub_file(str(config.url)).is_file():
            _reach(str(config.url), backbone)
        return load_state_dict_from_url(str(config.url), map_location="cpu", weights_only=True)
    if cached := _cached_by_hub(config):
        return _read(cached)
    _reach(constants.ENDPOINT, backbone)
    return load_state_dict_from_hf(config.hf_hub_id, weights_only=True)


def _timm_config(backbone: Backbone) -> PretrainedCfg:
    import timm

    config = timm.get_pretrained_cfg(backbone.name)
    if config is None or not config.has_weights:
        raise _no_weights(backbone)
    return config


def _cached_by_hub(config: PretrainedCfg) -> Path | None:
    """Return the cached file of a model. The hub's client would contact the network first, and wait for it."""
    from huggingface_hub import try_to_load_from_cache

    found = (try_to_load_from_cache(str(config.hf_hub_id), name) for name in ("model.safetensors", "pytorch_model.bin"))
    return next((Path(file) for file in found if isinstance(file, str)), None)


def _hub_file(address: str) -> Path:
    """Return the file in which torch stores a download from this address."""
    return Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(address).path).name


def _from_torchvision(backbone: Backbone) -> dict[str, torch.Tensor]:
    weights = _torchvision_weights(backbone)
    if not _hub_file(weights.url).is_file():
        _reach(weights.url, backbone)
    return weights.get_state_dict(progress=False, check_hash=True)


def _torchvision_weights(backbone: Backbone) -> WeightsEnum:
    from torchvision.models import get_model_weights

    weights = list(get_model_weights(backbone.name))
    if not weights:
        raise _no_weights(backbone)
    return get_model_weights(backbone.name).DEFAULT  # type: ignore[attr-defined]


def _no_weights(backbone: Backbone) -> UserError:
    return UserError(
        f"backbone.weights=pretrained: {backbone.source} publishes no weights for {backbone.name}. "
        "Choose another backbone.name, or backbone.weights=none."
    )


def _reach(address: str, backbone: Backbone) -> None:
    """Check that a server answers within five seconds; the library itself would retry for most of a minute."""
    parts = urlparse(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    answers: list[bool] = []

    def ask() -> None:
        with suppress(OSError):
            socket.create_connection((parts.hostname or "", port), timeout=CONNECT_SECONDS).close()
            answers.append(True)

    # A thread is needed because the time-out does not apply to a name server that does not answer.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    if not answers:
        raise UserError(
            f"backbone.weights=pretrained: the weights of {backbone.source}'s {backbone.name} are not cached here and "
            f"{parts.hostname} does not answer. Give a file (backbone.weights=path), set HF_ENDPOINT to a mirror, or "
            "use backbone.weights=letters or none."
        )

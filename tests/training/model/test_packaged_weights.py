"""The weights of the extra `weights` are those of timm's model, and need no network."""

import socket

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from training.contract.specs import Backbone
from training.model.build import build_model
from training.model.weights import fetch_pretrained, locate_weights
from training.process.optional import WEIGHTS_PACKAGE

pytest.importorskip(WEIGHTS_PACKAGE)
BACKBONE = Backbone(name="tf_efficientnet_lite0")


def test_a_photograph_of_a_flower_is_recognised_without_a_network(monkeypatch):
    monkeypatch.setattr(socket, "create_connection", None)
    assert locate_weights(BACKBONE) == "pretrained weights in the cache"
    state = fetch_pretrained(BACKBONE)
    model = build_model(BACKBONE.model_copy(update={"weights": "none"}), 1000, 224).eval()
    model.load_state_dict(state)
    flower = Image.fromarray(load_sample_images().images[1]).resize((320, 224)).crop((48, 0, 272, 224))
    pixels = torch.from_numpy(np.asarray(flower).copy()).permute(2, 0, 1)[None].float() / 127.5 - 1
    with torch.no_grad():
        assert model(pixels).argmax() == 985  # daisy
    built = build_model(BACKBONE, 3, 64)
    assert torch.equal(built.conv_stem.weight, state["conv_stem.weight"])

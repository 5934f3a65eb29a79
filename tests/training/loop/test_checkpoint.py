"""Writing checkpoints."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import timm
import torch

from training.contract.specs import Backbone
from training.errors import UserError
from training.evaluate import read_trained
from training.loop.checkpoint import list_given, write_checkpoint
from training.loop.trainer import DirectFile
from training.model.build import build_model
from training.small_trainings import list_differences


@pytest.mark.parametrize("write", [write_checkpoint, DirectFile().save_checkpoint])
def test_a_full_disk_is_an_error_of_the_system_so_that_a_sweep_ends_instead_of_its_trial(write):
    with pytest.raises(OSError, match="No space left") as error:
        write({"weights": torch.zeros(100_000)}, Path("/dev/full"))
    assert error.value.errno == errno.ENOSPC


def test_a_training_writes_its_checkpoints_without_lightnings_copy_in_memory(fit, monkeypatch):
    monkeypatch.setattr("lightning.fabric.plugins.io.torch_io._atomic_save", lambda *_: pytest.fail("copied"))
    run = fit()
    assert (run.folder / "last.ckpt").exists()
    assert not list(run.folder.glob("*.partial"))


@pytest.fixture
def backbone(tmp_path):
    """A backbone whose weights are in a file."""
    write_weights(tmp_path / "weights.pth", seed=0)
    return {"name": "test_resnet", "weights": str(tmp_path / "weights.pth")}


def write_weights(file, seed):
    torch.manual_seed(seed)
    torch.save(timm.create_model("test_resnet").state_dict(), file)


def list_names(folder, which):
    return {*torch.load(folder / f"{which}.ckpt", weights_only=True)["state_dict"]}


@pytest.fixture
def fit_whole(fit, monkeypatch):
    """Train with whole checkpoints."""

    def run(**fields):
        with monkeypatch.context() as patch:
            patch.setattr("training.train.list_given", lambda *_: {})
            return fit(**fields)

    return run


FROZEN = {
    "the head alone": {"unfreeze": {"level": "last"}},
    "the later half": {"unfreeze": {"level": "most"}, "flip": {"probability": 0.5}},
    "more and more": {"unfreeze": {"level": "last", "milestones": [1, 2]}},
    "norms": {"unfreeze": {"level": "norm_bias"}, "averaging": {"name": "ema"}},
    "adapters": {"unfreeze": {"level": "last"}, "lora": {"rank": 2}},
    "adapters in a mean of weights": {
        "unfreeze": {"level": "last"},
        "lora": {"rank": 2},
        "averaging": {"name": "swa", "start": 0.2},
    },
    "64 bits": {"unfreeze": {"level": "last"}, "precision": {"mode": "64-true"}},
    "two models": {
        "unfreeze": {"level": "last"},
        "snapshots": {"members": 2},
        "schedule": {"name": "cosine_restarts", "cycles": 2},
    },
}


@pytest.mark.parametrize("recipe", FROZEN.values(), ids=FROZEN)
def test_a_training_whose_checkpoints_leave_out_frozen_weights_is_the_same_and_so_is_a_resumed_one(
    recipe, backbone, fit, fit_whole, tmp_path
):
    recipe = {"backbone": backbone, "epochs": 4, **recipe}
    whole, own = fit_whole(**recipe), fit(**recipe)
    (stopped := tmp_path / "stopped").mkdir()
    fit(folder=stopped, **recipe, on_report=lambda report: report.epoch < 2)
    resumed = fit(folder=stopped, **recipe)
    assert list_differences(own.outcome, own.folder, resumed.outcome, resumed.folder) == []
    assert (own.metrics, own.outcome.reports[-1].score) == (whole.metrics, whole.outcome.reports[-1].score)
    weights, expected = (read_trained(run.folder / "best.ckpt")["state_dict"] for run in (own, whole))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


@pytest.mark.parametrize(("level", "kept"), [("last", 1), ("most", 8), ("full", 16)])
def test_of_the_layers_the_checkpoints_have_those_that_train(level, kept, backbone, fit):
    run = fit(backbone=backbone, unfreeze={"level": level}, epochs=1)
    layers = {name for name, weight in timm.create_model("test_resnet").named_parameters() if weight.ndim > 1}
    assert len(layers & list_names(run.folder, "best")) == kept
    assert len({f"model.{name}" for name in layers} & list_names(run.folder, "last")) == kept


def test_the_head_is_kept_also_where_it_has_not_changed(backbone):
    spec = Backbone(**backbone)
    names = {name for name, _ in list_given(build_model(spec, 10, 16), spec).values()}
    assert (len(names), "fc.weight" in names) == (15, False)


def test_weights_that_nobody_can_build_again_are_in_the_checkpoints(fit):
    for weights in ("none", "letters"):
        run = fit(backbone={"name": "test_resnet", "weights": weights}, unfreeze={"level": "last"}, epochs=1)
        assert "layer1.0.conv1.weight" in list_names(run.folder, "best")


def test_where_the_backbone_has_other_weights_by_now_reading_and_resuming_end_in_a_sentence(backbone, fit, tmp_path):
    recipe = {"backbone": backbone, "unfreeze": {"level": "last"}, "epochs": 2}
    (tmp_path / "run").mkdir()
    fit(folder=tmp_path / "run", **recipe, on_report=lambda report: False)
    write_weights(tmp_path / "weights.pth", seed=1)
    sentence = r"not those with which the checkpoint was written \(.*weight differs\)\. Restore them"
    with pytest.raises(UserError, match=sentence):
        read_trained(tmp_path / "run" / "best.ckpt")
    with pytest.raises(UserError, match=sentence):
        fit(folder=tmp_path / "run", **recipe)
    (tmp_path / "weights.pth").unlink()
    with pytest.raises(UserError, match=r"backbone.weights=.*weights.pth"):
        read_trained(tmp_path / "run" / "best.ckpt")

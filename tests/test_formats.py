"""Files that version 0.1.0 wrote: this version and all later ones read them."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from analysis.export.bundle import read_export
from analysis.export.model_card import describe
from analysis.loading import load
from ledger.events import KINDS, EpochReported, decode, encode
from ledger.file import Ledger
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from search.core.controller import Controller
from spaces.load import load_recipe, load_space
from training.model.build import build_model

FIRST = Path(__file__).parent / "formats" / "0.1.0"


@pytest.fixture
def old(tmp_path):
    """A sweep whose first driver was killed, and which a second one completed."""
    folder = SweepFolder(tmp_path / "quick-1")
    folder.path.mkdir()
    shutil.copy(FIRST / "ledger.jsonl", folder.ledger)
    return SweepRecord.open(folder)


def test_a_ledger_is_read_completely(old):
    states = {trial.number: trial.state for trial in old.trials}
    assert states == {**dict.fromkeys((0, 1, 2, 3, 5, 6, 7), "completed"), 4: "diverged"}
    assert old.trials.best().number == 7
    assert old.trials.by_number[5].crashes == 1
    assert (old.state, old.is_done, old.is_delivered) == ("completed", True, True)
    assert (old.run_ids[3], old.test_openings) == ("run3", 1)
    assert old.settings.tracking_uri == "sqlite:///mlflow.db"
    assert old.header.dataset["digest"] == "abc"
    assert old.trials.by_number[0].recipe == old.space.baselines()[0]
    assert len(load("quick-1", storage=old.folder.path.parent).completed) == 7


def test_a_controller_continues_with_a_ledger(old):
    controller = Controller(old.space, Ledger(old.folder.ledger))
    assert controller.is_done
    epochs = [
        event.epoch for event in controller.ledger.events if isinstance(event, EpochReported) and event.trial == 0
    ]
    assert epochs == [*range(1, 10)]


def test_every_kind_of_event_keeps_its_fields():
    lines = (FIRST / "events.jsonl").read_bytes().splitlines()
    kinds = {json.loads(line)["event"] for line in lines}
    assert len(kinds) == 21
    assert kinds <= KINDS
    for line in lines:
        assert_kept(json.loads(line), json.loads(encode(decode(line))))


def assert_kept(before, now):
    """A later version may have more fields, as those of a new technique in a recipe."""
    if isinstance(before, dict):
        for field, value in before.items():
            assert_kept(value, now[field])
    elif isinstance(before, list) and len(before) == len(now):
        for value, other in zip(before, now, strict=True):
            assert_kept(value, other)
    else:
        assert now == before


def test_a_space_and_a_recipe_are_read_as_they_were_meant():
    space = load_space(FIRST / "space.yaml")
    assert (space.search.trials, space.search.scheduler.min_epochs) == (8, 3)
    assert len(space.baselines()) == 3
    recipe = load_recipe(FIRST / "export" / "recipe.yaml")
    assert (recipe.epochs, recipe.backbone.name, recipe.optimizer.name) == (9, "test_resnet", "momentum")


def test_the_card_of_an_export_says_its_own_order_of_classes():
    recipe = load_recipe(FIRST / "export" / "recipe.yaml")
    summary = json.loads((FIRST / "export" / "summary.json").read_text())
    now, before = (describe(recipe, {**summary, "classes": names}) for names in (["1", "2", "10"], ["1", "10", "2"]))
    assert "index of its logit, in natural order (2 before 10), as timm's readers have them:\n\n0: `1`, 1: `2`" in now
    assert "index of its logit:\n\n0: `1`, 1: `10`, 2: `2`" in before


def test_an_export_is_read(tmp_path):
    shutil.copytree(FIRST / "export", tmp_path / "export")
    recipe = load_recipe(FIRST / "export" / "recipe.yaml")
    plain = recipe.model_copy(update={"backbone": recipe.backbone.model_copy(update={"weights": "none"})})
    save_file(build_model(plain.backbone, 10, 32).state_dict(), tmp_path / "export" / "model.safetensors")
    found = read_export(tmp_path / "export")
    assert found.summary["trial"] == "0007"
    assert found.model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)

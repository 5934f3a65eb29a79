"""The full space on this machine, with the demo's data: every random recipe trains."""

from __future__ import annotations

import pytest
import torch

from search.runner.machines.cluster import fit_to_cluster
from spaces.load import load_space
from spaces.parameters.draws import RandomTrial
from training.recipe import Recipe, read_recipe
from training.train import train

FEW, MANY = 4, 40
DEMO = [
    "data={name: digits, train_size: 48}",
    "backbone={name: test_resnet, weights: letters}",
    "preprocessing={image_size: auto}",
    "compilation={backend: none}",  # half a minute each; it has a test of its own
]


@pytest.mark.parametrize("draws", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_random_recipes_of_the_full_space_train(draws, tmp_path):
    space, notes = fit_to_cluster(load_space("full", DEMO), can_bf16=True, has_gpus=False)
    assert {note.split("=")[0].split()[-1] for note in notes} == {
        "precision.mode",
        "precision.float32",
        "cudnn_benchmark.enabled",
        "data_parallel.devices",
    }
    # With this seed every technique is on in some of the first recipes; snapshots are drawn rarely.
    trial, switched_on = RandomTrial(seed=23), set()
    threads = torch.get_num_threads()
    for number in range(draws):
        recipe = read_recipe(space.suggest(trial))
        (tmp_path / str(number)).mkdir()
        outcome = train(recipe, tmp_path / str(number), on_report=lambda report: False)
        assert outcome.state in ("stopped", "diverged"), recipe
        assert read_recipe(outcome.recipe.model_dump()) == outcome.recipe  # so a ledger and a checkpoint can hold it
        switched_on |= {name for name, value in Recipe() if getattr(recipe, name) != value}
    assert torch.get_num_threads() == threads
    if draws < MANY:
        return
    # Every technique was among them but what needs a GPU, several CPUs or a teacher, or is left out above.
    techniques = {name for name, value in Recipe() if type(value).__module__.startswith("training.techniques")}
    assert techniques - switched_on == {"compilation", "cudnn_benchmark", "data_parallel", "distillation"}

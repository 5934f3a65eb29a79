"""A missing library gives one sentence with the line that installs it."""

import re
import tomllib
from pathlib import Path

import pytest

from search.arguments import check_address
from search.runner.machines.cluster import fit_to_cluster
from spaces.load import load_space
from training.data.pipelines.dali_pipeline import make_pipeline
from training.errors import UserError
from training.process import optional
from training.process.optional import EXTRAS, NEEDED_BY, is_installed, require
from training.recipe import read_recipe

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


@pytest.fixture
def without(monkeypatch):
    """Hide libraries from the search for installed ones."""

    def hide(*libraries):
        monkeypatch.setattr(optional, "find_spec", lambda name: None if name in libraries else object())

    return hide


def test_every_extra_named_in_a_sentence_is_one_of_the_package_and_no_base_dependency():
    extras = PROJECT["optional-dependencies"]
    assert set(EXTRAS.values()) | {"cluster"} == set(extras)  # `ray job submit` itself names what it lacks
    optional_names = {re.split(r"[>;]", line)[0] for lines in extras.values() for line in lines}
    assert optional_names & {re.split(r"[>;]", line)[0] for line in PROJECT["dependencies"]} == set()


def test_a_library_in_a_package_that_is_missing_too_is_not_installed():
    assert not is_installed("no_such_package.part")
    assert is_installed("torch.nn")


def test_a_missing_library_is_named_with_the_line_that_installs_it(without):
    without("onnxruntime")
    with pytest.raises(UserError, match=r"^--int8: onnxruntime is not installed\..*pip install -e '\.\[onnx\]'\.$"):
        require("--int8", "onnx", "onnxruntime")
    require("--int8", "onnx")


def test_a_missing_dali_is_reported_before_a_pipeline_is_built(without):
    without("nvidia.dali")
    recipe = read_recipe({"augmentation": {"policy": "affine_colour", "backend": "dali"}})
    with pytest.raises(UserError, match=r"backend=dali: nvidia\.dali is not installed.*\.\[dali\].*backend=auto"):
        make_pipeline(recipe, encoded=False, fitting=True, threads=1, device="cpu")


def test_adam8bit_without_its_library_names_another_optimizer(without):
    without("bitsandbytes")
    with pytest.raises(UserError, match=r"adam8bit: bitsandbytes is not installed.*\.\[8bit\].*optimizer\.name=adam\."):
        read_recipe({"optimizer": {"name": "adam8bit"}}).optimizer.build([])


@pytest.mark.parametrize("name", ["schedule_free", "prodigy", "soap"])
def test_an_optimizer_without_its_library_names_another(name, without):
    without("pytorch_optimizer")
    words = rf"{name}: pytorch_optimizer is not installed.*\.\[optimizers\].*optimizer\.name=adamw\."
    with pytest.raises(UserError, match=words):
        read_recipe({"optimizer": {"name": name}}).optimizer.build([])


def test_an_address_of_postgresql_without_its_driver_is_refused_and_shows_no_password(without):
    without("psycopg")
    with pytest.raises(UserError, match=r"--tracking-uri=postgresql://\S*\*\*\*\S*: psycopg is not.*\.\[postgres\]"):
        check_address("postgresql://ana:geheim@host/mlflow")
    check_address("http://host:5000")


def test_a_sweep_leaves_out_what_is_not_installed_and_names_it(without):
    space = load_space("full", [])
    without("bitsandbytes")
    reduced, notes = fit_to_cluster(space, can_bf16=True, has_gpus=True)
    assert "adam8bit" in space.values_of("optimizer.name")
    assert "adam8bit" not in reduced.values_of("optimizer.name")
    assert ".[8bit]" in " ".join(note for note in notes if "optimizer.name=adam8bit" in note)


def test_a_space_with_only_options_that_are_not_installed_is_refused(without):
    without(*NEEDED_BY.values())
    space = load_space("quick", ["augmentation={policy: affine_colour, backend: dali}"])
    with pytest.raises(UserError, match=r"augmentation\.backend=dali: nvidia\.dali is not installed"):
        fit_to_cluster(space, can_bf16=True, has_gpus=False)

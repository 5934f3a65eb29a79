"""`--plugin` loads a technique of the user's own: the page of docs that shows it, and every command of a sweep."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from ledger.events import TrialStarted, decode, encode
from spaces.load import dump_recipe, load_recipe, load_space, parse_recorded_space
from spaces.parameters.draws import RandomTrial
from tests.commands import call
from training import plugins
from training.contract.own_parts import PARTS
from training.errors import UserError
from training.recipe import read_recipe

PAGE = Path(__file__).parents[3] / "docs" / "plugins.md"
SWEEP = Path(sys.executable).parent / "sweep"


@pytest.fixture(autouse=True)
def only_bundled_techniques_afterwards():
    yield
    plugins.forget()


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A folder with the file and the space of the page."""
    text = PAGE.read_text()
    python = ("input_noise.py", "radam.py", "inverse_sqrt.py", "brier.py", "posterised.py", "shapes.py")
    for kind, names in (("python", python), ("yaml", ("space.yaml", "radam.yaml", "shapes.yaml"))):
        blocks = re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)
        for name, block in zip(names, blocks, strict=False):
            (tmp_path / name).write_text(block)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_shows_a_file_and_a_space_that_work(page, capsys):
    with pytest.raises(UserError, match=r"space\.yaml:6: a recipe has no input_noise; .* from its file: --plugin FILE"):
        call("space", "space.yaml")
    call("space", "space.yaml", "--plugin", "input_noise.py")
    assert capsys.readouterr().out == Path("space.yaml").read_text()
    call("techniques", "input_noise", "--plugin", "input_noise.py")
    card = capsys.readouterr().out
    assert "add Gaussian noise to training images (Bishop 1995, section 2)." in card
    assert "input_noise={strength: 0.1}" in card
    assert "sha256" not in card


def test_a_card_shows_a_docstring_of_another_form(page, capsys):
    text = Path("input_noise.py").read_text()
    Path("input_noise.py").write_text(re.sub(r'\A""".*?"""', '"""Noise as we add it here."""', text, flags=re.DOTALL))
    call("techniques", "input_noise", "--plugin", "input_noise.py")
    assert "Noise as we add it here" in capsys.readouterr().out


def test_the_page_shows_data_and_a_backbone_that_train(page, capsys):
    with pytest.raises(UserError, match=r"data\.name=shapes: there is cifar10, .* from its file: --plugin FILE"):
        call("space", "shapes.yaml")
    call("data", "shapes", "--plugin", "shapes.py")
    assert "disc" in capsys.readouterr().out
    call("train", "shapes.yaml", "--plugin", "shapes.py", "--out", "trained", "--cpus", "1")
    recipe = Path("trained/recipe.yaml").read_text()
    assert len(re.findall(r"code: sha256-\w{16}", recipe)) == 2
    assert load_recipe("trained/recipe.yaml").backbone.name == "small_net"
    plugins.forget()
    with pytest.raises(UserError, match=r"This recipe has the data shapes \(sha256-\w+\): give its file with --plugin"):
        load_recipe("trained/recipe.yaml")


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("radam.py", "optimizer={name: radam, lr: 0.01}"),
        ("inverse_sqrt.py", "schedule={name: inverse_sqrt, warmup_epochs: 0.5}"),
        ("brier.py", "loss={name: brier}"),
        ("posterised.py", "augmentation={policy: posterised, bits: 3}"),
    ],
)
def test_the_page_shows_a_kind_of_each_family_that_trains(page, file, part):
    assert part.replace("=", ": ", 1) in PAGE.read_text() or part in PAGE.read_text()
    options = ("--plugin", file, "--plugin", "radam.py", "--out", "trained", "--cpus", "1")
    call("train", "radam.yaml", part, *options)
    family = part.partition("=")[0]
    assert f"{family}.{Path(file).stem}" in PARTS
    assert getattr(load_recipe("trained/recipe.yaml"), family).model_dump()["code"].startswith("sha256-")


def test_a_space_with_a_technique_of_ones_own_is_checked_like_any_other(page):
    plugins.load(["input_noise.py"])
    space = load_space("space.yaml")
    drawn = [read_recipe(space.suggest(RandomTrial(seed))) for seed in range(10)]
    assert {recipe.input_noise.is_on for recipe in drawn} == {True, False}
    assert [recipe for recipe in drawn if space.encode(recipe) is None] == []
    assert not space.baselines()[0].input_noise.is_on
    with pytest.raises(UserError, match="input_noise has no strenght; it has strength.* Did you mean strength"):
        load_space("space.yaml", ["input_noise={strenght: 0.1}"])
    with pytest.raises(UserError, match=r"input_noise\.strength=2: .*less than or equal to 1"):
        load_space("space.yaml", ["input_noise={strength: 2}"])


def test_a_recipes_file_and_a_ledger_name_version_and_hash_but_no_file(page):
    plugins.load(["input_noise.py"])
    recipe = read_recipe({"input_noise": {"strength": 0.2}})
    Path("recipe.yaml").write_text(dump_recipe(recipe))
    line = encode(TrialStarted(trial=0, recipe=recipe, params=None, origin="single"))
    assert load_recipe("recipe.yaml") == recipe
    assert decode(line).recipe == recipe
    for text in (Path("recipe.yaml").read_text(), line.decode()):
        assert re.search(r"1\.0 sha256-\w{16}", text)
        assert ".py" not in text
    plugins.forget()
    needs = r"This recipe has the technique input_noise \(1\.0 sha256-\w+\): give its file with --plugin"
    with pytest.raises(UserError, match=needs):
        load_recipe("recipe.yaml")
    with pytest.raises(UserError, match=needs):
        decode(line)


def test_a_recorded_space_with_a_technique_that_is_not_loaded_asks_for_its_file(page):
    plugins.load(["input_noise.py"])
    text = load_space("space.yaml").to_yaml()
    assert parse_recorded_space(text, "space.yaml", "space-1").to_yaml() == text
    plugins.forget()
    asks = r"^space-1: this sweep has the technique input_noise, .* its file with --plugin FILE"
    with pytest.raises(UserError, match=asks):
        parse_recorded_space(text, "space.yaml", "space-1")


def test_the_next_commands_of_a_sweep_load_the_same_files(page, tmp_path, capsys):
    from ledger.folder import SweepFolder
    from ledger.record import SweepRecord
    from ledger.settings import Settings
    from search.cli.run.conclusion import conclude
    from search.display.terminal import make_console
    from search.result import Result
    from search.runner.sweep import create_folder, make_header

    plugins.load(["input_noise.py"])
    folder = SweepFolder(tmp_path / "sweeps" / "noise")
    create_folder(folder, make_header("noise", "1", load_space("space.yaml"), Settings("sqlite:///mlflow.db")))
    result = Result(SweepRecord.open(folder), "completed", 0, make_console())
    with pytest.raises(typer.Exit):
        conclude(result)
    assert "Next: sweep show noise --plugin input_noise.py, sweep ui" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("line", ["with: input_noise.py", "with: [input_noise.py]"])
def test_a_space_cannot_name_a_file_of_code(page, line):
    Path("bad.py").write_text("raise SystemExit('this ran')")
    Path("space.yaml").write_text(f"{line}\n{Path('space.yaml').read_text()}")
    with pytest.raises(UserError, match="there is no with in a space"):
        load_space("space.yaml")


def test_a_ray_worker_gets_the_techniques_with_its_function(page):
    import cloudpickle

    from search.runner.worker import bootstrap

    plugins.load(["input_noise.py"])
    read = bootstrap("training.recipe", "read_recipe")
    Path("call").write_bytes(cloudpickle.dumps(read))
    Path("input_noise.py").unlink()  # the worker is on another machine
    code = (
        "import pickle; call = pickle.load(open('call', 'rb'));"
        "print([type(t).__name__ for t in call({'input_noise': {'strength': 0.2}}).techniques()])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['InputNoise']"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_commands_of_the_page_run(page):
    little = ["epochs=1", "data.train_size=40", "backbone.weights=none", "search.trials=5"]
    own_file = ["--plugin", "input_noise.py"]

    def sweep(*arguments):
        done = subprocess.run([SWEEP, *arguments], capture_output=True, text=True, timeout=200, check=False)
        return done.returncode, done.stdout + done.stderr

    code, said = sweep("run", "space.yaml", *little, *own_file)
    assert code == 0, said
    assert "sweep report space-1 --plugin input_noise.py" in " ".join(said.split())
    assert sweep("report", "space-1", *own_file)[0] == 0
    assert "input_noise" in Path("reports/space-1.html").read_text()
    changed = Path("changed.py")
    changed.write_text(Path("input_noise.py").read_text().replace("1.0", "1.1"))
    code, said = sweep("resume", "space-1", "--trials", "1", "--plugin", "changed.py")
    assert (code, "is another version of it" in said) == (2, True), said
    code, said = sweep("resume", "space-1", "--trials", "1")
    assert (code, "give its file with --plugin" in said) == (2, True), said

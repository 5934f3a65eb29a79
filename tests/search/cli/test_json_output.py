"""`--json`: names that stay, values that are exact, and nothing else on the standard output."""

import json
import pydoc
import re
from pathlib import Path

import pytest

from analysis.effects.seed_intervals import Interval
from ledger.events import TestScored
from search.cli.json_output import apart
from search.cli.main import app
from search.evaluation.replications.findings import Ablation, Confirmation, ConfirmedRecipe, TechniqueWorth, Worth
from search.result import Result
from tests.commands import read

# Programs of users read these names: add new ones at the end, and never change one.
NAMES = {
    "SweepRow": "name state done total metric score standard_error started folder",
    "Confirmation": "sweep of metric seeds recipes notes test",
    "ConfirmedRecipe": "label searched scores interval ranks ahead_of_baseline is_baseline",
    "Ablation": "sweep of metric seeds comparisons techniques recipes notes",
    "TechniqueWorth": "technique value in_winner in_baseline",
    "Worth": "interval proven likely",
    "Score": "images correct accuracy confusion recall calibration reliability worst",
    "DataResult": "name classes remarks shorter_side mean std input picture near_copies",
    "ClassRow": "name train val test",
    "InputRow": "image_size interpolation crop mean std random_crop flip augmentation backend",
    "NearCopyRow": "name part other_name other_part",
    "FilesResult": "name images unreadable remarks near_copies",
    "FileRow": "path reason",
    "Card": "name title effect source interactions kinds hyperparameters example domain costs",
    "Hyperparameter": "kind name legal default description",
}
GAIN = Interval(1 / 3, 0.1, 0.5)
TEST = TestScored(trial=1, openings_before=0, classes=("a",), results={"accuracy": {"mean": float("nan")}}, time=0.0)
CONFIRMED = Confirmation(
    *("tiny-confirm", "tiny", "val_accuracy", (5, 6)),
    [
        ConfirmedRecipe("0003", 0.9, [0.8, 0.9], GAIN, (1, 2), GAIN),
        ConfirmedRecipe("baseline", 0.7, [], GAIN, (1, 2), None),
    ],
    ["a note"],
    TEST,
)
ABLATED = Ablation(
    *("tiny-ablate", "tiny", "val_accuracy", (5, 6), 2),
    [TechniqueWorth("mixup", "alpha=0.2", Worth(GAIN, True, True), None)],
    {"winner": GAIN},
    [],
)


@pytest.fixture
def opened(monkeypatch):
    """Results without trainings; each method prints as the real one does."""

    def give(found):
        def method(self, *_, **__):
            self.console.print("progress")
            print("a library prints")
            return found

        return method

    monkeypatch.setattr("search.open", lambda *_, console, **__: Result(None, "", 0, console))
    monkeypatch.setattr(Result, "confirm", give(CONFIRMED))
    monkeypatch.setattr(Result, "ablate", give(ABLATED))


def test_the_names_of_all_fields_are_stable_and_documented():
    documented = re.findall(r"autoclass:: (\S+)", Path("docs/formats.md").read_text())
    kinds = [pydoc.locate(name) for name in documented]
    assert {kind.__name__: " ".join(kind.__annotations__) for kind in kinds} == NAMES


def test_confirm_prints_the_content_of_its_file(opened, capsys):
    plain = json.loads(read(capsys, "confirm", "tiny", "--json"))
    assert list(plain) == ["format", *NAMES["Confirmation"].split()]
    assert plain["recipes"][0]["interval"]["mean"] == 1 / 3
    assert plain["test"]["results"]["accuracy"]["mean"] is None  # JSON has no NaN


def test_ablate_prints_its_results(opened, capsys):
    assert json.loads(read(capsys, "ablate", "tiny", "--json"))["techniques"][0]["in_winner"]["proven"] is True


def test_without_the_option_messages_are_on_the_standard_output(opened, capsys):
    assert read(capsys, "ablate", "tiny") == "progress\na library prints\n"


def test_messages_go_to_standard_error_if_the_output_is_for_programs(capsys):
    with apart(True) as console:
        console.print("progress")
        print("a library prints")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "progress\na library prints\n")


def test_techniques_are_cards(capsys):
    cards = json.loads(read(capsys, "techniques", "--json"))
    card = json.loads(read(capsys, "techniques", "mixup", "--json"))
    assert card["hyperparameters"][0]["name"] == "alpha"
    assert card in cards


def test_data_are_counted_by_class(tmp_path, capsys):
    arguments = ["data", "digits", "data.train_size=64", "--out", str(tmp_path / "data.png")]
    found = json.loads(read(capsys, *arguments, "--json"))
    assert sum(row["train"] for row in found["classes"]) == 64
    assert (found["input"]["backend"], len(found["mean"])) == ("tensor", 3)


def test_broken_files_are_rows_and_the_exit_code_stays(tmp_path, capsys):
    from PIL import Image

    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(9):
            Image.new("RGB", (20, 20), (number, 0, 0)).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "photos" / "cat" / "0.png").write_bytes(b"no picture")
    assert app(["data", str(tmp_path / "photos"), "--check", "--json"], standalone_mode=False) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["images"], len(found["unreadable"])) == (18, 1)
    assert found["unreadable"][0]["path"].endswith("cat/0.png")

"""`sweep export` and `sweep predict` as a user calls them."""

import json

import pytest
from PIL import Image

from analysis.report.findings import find
from analysis.report.sentences import describe_lead
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.tables import make_tables
from tests.commands import call
from training.data.load_data import load_data
from training.errors import UserError


def test_the_best_trial_exports_quantised_and_labels_a_folder(home, trained_sweep, capsys):
    call("export", "tiny", "--int8")
    summary = json.loads((home / "exports" / "tiny" / "summary.json").read_text())
    assert summary["int8"]["val_accuracy_float32"] == pytest.approx(summary["score"])
    card = (home / "exports" / "tiny" / "MODEL_CARD.md").read_text()
    assert "`model.int8.onnx` holds 8-bit weights" in card
    assert "It was not scored on the test split" in card
    assert "has a validation accuracy of" in capsys.readouterr().out
    recipe = SweepRecord.open(trained_sweep).trials.best().recipe
    image = load_data(recipe.data).val.images[0]
    (home / "photos").mkdir()
    Image.fromarray(image).save(home / "photos" / "one.png")
    call("predict", "exports/tiny", "photos")
    assert "Labelled 1 image: predictions.csv" in capsys.readouterr().out
    (home / "photos" / "two.png").write_bytes(b"nothing")
    said = r"1 of 2 files cannot be read and is left out: .*two\.png \(not an image\)\. Repair or remove it\.$"
    with pytest.raises(UserError, match=said):
        call("predict", "exports/tiny", "photos")
    assert (home / "predictions.csv").read_text().count("\n") == 2


def test_the_card_of_the_best_trial_has_the_headline_of_the_report_and_another_trial_has_none(home, trained_sweep):
    record = SweepRecord.open(trained_sweep)
    findings = find(make_tables(record))
    headline = describe_lead(findings.sweep.metric, findings.lead)
    call("export", "tiny")
    assert json.loads((home / "exports" / "tiny" / "summary.json").read_text())["finding"] == headline
    assert f"**{headline}**" in (home / "exports" / "tiny" / "MODEL_CARD.md").read_text()
    other = record.trials.ranked()[1].name
    call("export", "tiny", "--trial", other)
    assert "finding" not in json.loads((home / "exports" / f"tiny-{other}" / "summary.json").read_text())


def test_an_export_does_not_take_the_place_of_that_of_another_sweep_with_this_name(home):
    call("export", "tiny")
    summary = home / "exports" / "tiny" / "summary.json"
    facts = json.loads(summary.read_text())
    assert facts["sweep_id"] == SweepRecord.open(SweepFolder(home / "sweeps" / "tiny")).header.id
    other = json.dumps({**facts, "sweep_id": "another"})
    summary.write_text(other)
    for _ in range(2):  # its own is written anew
        call("export", "tiny")
    assert sorted(path.name for path in (home / "exports").iterdir()) == ["tiny", "tiny-2"]
    assert summary.read_text() == other
    del facts["sweep_id"]  # of an earlier version, which does not say
    summary.write_text(json.dumps(facts))
    call("export", "tiny")
    assert "sweep_id" in json.loads(summary.read_text())


MISTAKES = {
    "an export that is not there": (["predict", "nothing", "."], "nothing: not an export with weights"),
    "images that are not there": (["predict", "stub", "photos"], "photos: no such folder or image"),
    "a file for an export": (["export", "tiny", "--out", "image.png"], "--out=image.png: it cannot be written to"),
    "a folder below a file": (["export", "tiny", "--out", "image.png/x"], "--out=image.png/x: it cannot be written to"),
    "somebody else's folder": (["export", "tiny", "--out", "sweeps"], "--out=sweeps: the folder has other files"),
    "a name too long": (["export", "tiny", "--out", "x" * 300], "--out=x*: it cannot be written to"),
    "a folder for a table": (["predict", "stub", "sweeps", "--out", "sweeps"], "--out=sweeps: this is a folder"),
    "no name for a model": (["export", "tiny", "--register", "a/b"], "--register=a/b"),
    "a name that paints": (["export", "tiny", "--register", "a\x1b[31mb"], r"--register='a\\x1b\[31mb'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_in_one_sentence(mistake, home):
    Image.new("RGB", (8, 8)).save(home / "image.png")
    (home / "stub").mkdir()
    for name in ("recipe.yaml", "summary.json", "model.safetensors"):
        (home / "stub" / name).touch()
    before = sorted(home.rglob("*"))
    arguments, words = MISTAKES[mistake]
    with pytest.raises(UserError, match=words):
        call(*arguments)
    assert sorted(home.rglob("*")) == before


def test_data_whose_classes_changed_since_the_training_is_refused(home, monkeypatch):
    from dataclasses import replace

    from training import evaluate

    monkeypatch.setattr(
        evaluate, "load_data", lambda spec: replace(load_data(spec), classes=(*map(str, range(9)), "nine"))
    )
    with pytest.raises(UserError, match=r"its classes are not those of the training any more \(9, nine changed\)"):
        call("export", "tiny", "--onnx")

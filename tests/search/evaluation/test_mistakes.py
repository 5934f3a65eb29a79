"""The report shows what the best trial gets wrong, where its weights and images are here."""

from dataclasses import replace

import pytest

from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from search.evaluation import report
from search.evaluation.report import find_mistakes
from tests.commands import call
from training.errors import UserError


@pytest.fixture
def record(home):
    return SweepRecord.open(SweepFolder(home / "sweeps" / "tiny"))


def test_the_report_has_the_confusion_and_the_worst_images_of_the_best_trial(home, record):
    call("report", "tiny")
    page = (home / "reports" / "tiny.html").read_text()
    assert "What the best trial gets wrong" in page
    assert 'data-chart="confusion"' in page
    assert "data:image/png;base64," in page
    classes = find_mistakes(record, print)[1]
    table = next(chart.data["table"] for chart in classes.charts)
    best = record.trials.best()
    right = sum(table[place][place] for place in range(len(table)))
    assert right / sum(map(sum, table)) == pytest.approx(best.score)


def test_of_many_validation_images_some_from_all_of_them_are_predicted(record, monkeypatch):
    monkeypatch.setattr(report, "PREDICTED", 50)
    first, classes = find_mistakes(record, print)
    assert "on 50 validation images" in first.text[0]
    assert sum(int(images) for _, images, *_ in classes.rows) == 50
    assert all(int(images) for _, images, *_ in classes.rows)


def fail(*_, **__):
    raise UserError("one.png: damaged")


def test_without_weights_there_is_nothing_and_other_classes_are_said(record, monkeypatch, capsys):
    from training import evaluate

    whole = evaluate.load_data
    with monkeypatch.context() as patched:
        patched.setattr(evaluate, "load_data", lambda spec: (data := whole(spec)) and replace(data, classes=("7",)))
        assert find_mistakes(record, print) == []
    said = "! The report does not show what the best trial gets wrong. "
    assert f"{said}data.name=digits" in capsys.readouterr().out
    with monkeypatch.context() as patched:
        patched.setattr(evaluate, "make_eval_loader", fail)  # as where an image is damaged
        assert find_mistakes(record, print) == []
    assert f"{said}one.png: damaged" in capsys.readouterr().out
    (record.folder.trial(record.trials.best().number) / "best.ckpt").unlink()
    assert find_mistakes(record, print) == []
    assert capsys.readouterr().out == ""

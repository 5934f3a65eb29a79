"""Damage is reported, other sweeps are not affected, and everything that is intact is read."""

import shutil

import pytest

from ledger.events import WarmStart
from ledger.file import Ledger, read_events
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.settings import Settings
from search.core.controller import Controller
from search.runner.sweep import create_folder, make_header
from spaces.load import load_space
from tests.commands import call
from training.errors import UserError
from training.loop.epoch_report import Report


def make_sweep(storage, name, trials=5):
    """Create a finished sweep whose trials have invented scores."""
    folder = SweepFolder(storage / name)
    space = load_space("quick", [f"search.trials={trials}", "search.scheduler={name: none}"])
    create_folder(folder, make_header(name, "1", space, Settings()), WarmStart(recipes=()))
    ledger = Ledger(folder.ledger)
    finish(space, ledger)
    ledger.close()
    return folder


def finish(space, ledger):
    """Run the remaining trials of a sweep, and return its controller."""
    controller = Controller(space, ledger)
    controller.take_over()
    while (trial := controller.next_trial()) is not None:
        for epoch in range(trial.epoch + 1, trial.epochs + 1):
            score = 0.5 + trial.number / 100
            controller.report(trial.number, Report(epoch, {"val_accuracy": 0.5}, score, 0.01, epoch, [], 0.0))
    return controller


def damage(folder, number, garbage=b"\x00\x00 garbage"):
    """Replace one line, the first being number 1."""
    lines = folder.ledger.read_bytes().split(b"\n")
    lines[number - 1] = garbage
    folder.ledger.write_bytes(b"\n".join(lines))


@pytest.fixture
def storage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "sweeps"


def empty(folder):
    folder.ledger.write_bytes(b"")


DAMAGES = {
    "a line of garbage": (lambda folder: damage(folder, 3), r"ledger\.jsonl:3: .*space\.yaml.*sweep rm mine"),
    "a line that is no mapping": (lambda folder: damage(folder, 1, b"[]"), r"ledger\.jsonl:1: .*sweep rm mine"),
    "a line nested too deep": (lambda folder: damage(folder, 2, b"[" * 99999), r"ledger\.jsonl:2: .*sweep rm mine"),
    "an empty ledger": (empty, r"ledger is empty.*sweep rm mine"),
    "no ledger": (lambda folder: folder.ledger.unlink(), r"ledger\.jsonl, is missing.*sweep rm mine"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_sweep_is_named_and_the_others_are_listed(kind, storage, capsys):
    make_sweep(storage, "good", trials=3)
    hurt, words = DAMAGES[kind]
    hurt(make_sweep(storage, "mine", trials=3))
    call("list")
    printed = " ".join(capsys.readouterr().out.split())
    assert "3/3" in printed
    assert "! " in printed
    for command in (["show"], ["export"], ["resume"], ["confirm"], ["ablate"]):
        with pytest.raises(UserError, match=words):
            call(*command, "mine")
    call("rm", "-y", "mine")
    assert [path.name for path in storage.iterdir()] == ["good"]


def test_a_sweep_continues_to_its_end_after_the_loss_of_any_later_line(storage, caplog):
    whole = make_sweep(storage, "whole", trials=5)
    lines = whole.ledger.read_bytes().splitlines(keepends=True)
    space = load_space(whole.space)
    for number in range(4, len(lines) + 1):
        folder = SweepFolder(storage / f"without-{number}")
        shutil.copytree(whole.path, folder.path)
        damage(folder, number)
        before = folder.ledger.read_bytes()
        caplog.clear()
        controller = finish(space, Ledger(folder.ledger))
        assert [f"read without line {number}." in record.getMessage() for record in caplog.records] == [True]
        assert folder.ledger.read_bytes().startswith(before)
        assert {trial.state for trial in controller.trials} == {"completed"}
        assert len(controller.trials) == 5
        assert {
            trial.recipe.model_dump_json() for trial in controller.trials if trial.origin == "baseline"
        } == baselines(space)
        started = [event.trial for event in read_events(folder.ledger) if event.event == "start"]
        assert len(started) == len(set(started)) == 5


def baselines(space):
    return {recipe.model_dump_json() for recipe in space.baselines()}


def test_a_new_trial_never_gets_the_number_of_one_whose_start_was_lost(storage):
    folder = make_sweep(storage, "mine")
    starts = [n for n, event in enumerate(read_events(folder.ledger), start=2) if event.event == "start"]
    damage(folder, starts[1])
    damage(folder, starts[4])
    controller = finish(load_space(folder.space), Ledger(folder.ledger))
    assert sorted(controller.trials.by_number) == [0, 2, 3, 5, 6]


def test_a_number_whose_trial_has_only_a_folder_is_not_used_again(storage, monkeypatch):
    folder = make_sweep(storage, "mine")
    folder.trial(11).mkdir(parents=True)
    assert folder.trial_numbers() == [11]
    trials = SweepRecord.open(folder).trials
    assert trials.next_number() == 5
    trials.reserve(folder.trial_numbers())
    assert trials.next_number() == 12


@pytest.mark.parametrize("content", [None, b"junk: [", b"\xff\xfe"])
def test_a_sweep_needs_its_ledger_alone_and_the_file_of_its_space_says_so(content, storage, capsys):
    folder = make_sweep(storage, "mine")
    assert "a change here has no effect on it" in folder.space.read_text()
    assert load_space(folder.space) == SweepRecord.open(folder).space
    folder.space.unlink()
    if content is not None:
        folder.space.write_bytes(content)
    call("show", "mine")
    call("list")
    assert "5/5" in capsys.readouterr().out
    assert SweepRecord.open(folder).is_done


def test_after_the_loss_of_the_best_epochs_report_the_score_is_kept(storage):
    from search.evaluation.trial_export import source_of

    folder = make_sweep(storage, "mine")
    record = SweepRecord.open(folder)
    trial = record.trials.by_number[0]
    trial.reports = [trial.reports[0], trial.reports[-1].model_copy(update={"best_epoch": 2})]
    source = source_of(record, trial, None, ["a", "b"])
    assert source["best_epoch"] == 2
    assert source["metrics"] == {"val_accuracy": trial.score}


def test_with_damaged_weights_the_recipe_can_still_be_exported(trained_sweep, tmp_path, monkeypatch, capsys):
    shutil.copytree(trained_sweep.path, tmp_path / "sweeps" / "tiny")
    monkeypatch.chdir(tmp_path)
    for number, junk in enumerate([b"junk", b"", b"PK\x03\x04 cut short", b"\x80\x02."]):
        (tmp_path / "sweeps" / "tiny" / "trials" / f"{number:04d}" / "best.ckpt").write_bytes(junk)
        call("export", "tiny", "--trial", f"{number:04d}")
        assert "the checkpoint is damaged" in " ".join(capsys.readouterr().out.split())
        assert (tmp_path / "exports" / f"tiny-{number:04d}" / "recipe.yaml").exists()

"""The best recipes again on fresh seeds: what is compared, what is said, and that the test split is opened once."""

import html
import json
import re
import shutil
from collections import Counter

import numpy as np
import pytest

from ledger.events import Replication, ReplicationTrial
from ledger.file import Ledger, read_events
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.trials import Trial
from search.evaluation.replications import confirmation
from search.evaluation.replications.replication import read_replication
from search.evaluation.trial_export import name_trial
from spaces.load import load_space
from tests.analysis.made_up import SPACE, make_header, simulate
from tests.commands import call
from training.data import load_data as load
from training.recipe import Recipe


@pytest.fixture
def home(home, without_ray, without_store):
    return home


@pytest.fixture
def sent(monkeypatch):
    """What would be logged on the sweep's run in MLflow."""
    import search.tracking.own_run

    calls = []
    monkeypatch.setattr(
        search.tracking.own_run,
        "log_results",
        lambda folder, metrics, files, sentences, *rest: calls.append(
            {**metrics, "description": "\n\n".join(sentences)}
        ),
    )
    return calls


def count_reads(monkeypatch):
    """How often data, ledgers and checkpoints are read from now on."""
    from ledger import record
    from training import evaluate

    read = Counter(data=0)

    def count(name, original):
        def counted(source, *rest):
            read[name or source.parent.name] += 1
            return original(source, *rest)

        return counted

    monkeypatch.setattr(load, "load_data", count("data", load.load_data))
    monkeypatch.setattr(record, "read_events", count("", record.read_events))
    monkeypatch.setattr(evaluate, "read_checkpoint", count("checkpoint", evaluate.read_checkpoint))
    return read


def test_the_best_recipes_are_trained_again_on_fresh_seeds_and_the_winner_is_scored_once(
    home, sent, capsys, monkeypatch
):
    call("confirm", "tiny", "--top", "2", "--seeds", "2")
    folder = SweepFolder(home / "sweeps" / "tiny-confirm")
    replicated = read_replication(SweepRecord.open(folder))
    assert replicated.event.seeds == (1, 2)
    assert "baseline" in replicated.by_label
    assert len(replicated.by_label) == 3
    for label, trials in replicated.by_label.items():
        assert [trial.recipe.seed for trial in trials] == [1, 2]
        assert len({trial.recipe.model_copy(update={"seed": 0}).model_dump_json() for trial in trials}) == 1, label
    findings = json.loads((folder.path / "confirm.json").read_text())
    baselines = ["baseline", *(trial.name for trial in replicated.source.trials if trial.origin == "baseline")]
    assert [found["is_baseline"] for found in findings["recipes"]] == [
        found["label"] in baselines for found in findings["recipes"]
    ]
    means = [found["interval"]["mean"] for found in findings["recipes"]]
    assert means == sorted(means, reverse=True)
    assert [
        f for f in findings["recipes"] if not (f["interval"]["low"] <= f["interval"]["mean"] <= f["interval"]["high"])
    ] == []
    results = findings["test"]["results"]
    assert results["images"] == 350
    assert results["correct"] == sum(results["confusion"][k][k] for k in range(10))
    assert results["accuracy"]["mean"] == results["correct"] / 350
    after, before = results["calibration"]["after"], results["calibration"]["before"]
    assert after["nll"] < before["nll"], "two epochs leave a model badly calibrated; temperature mends some of it"
    assert sent[0]["test_accuracy"] == results["accuracy"]["mean"]
    page = (folder.path / "confirm.html").read_text()
    assert page.count("data:image/png;base64,") == 1  # the worst errors
    assert [kind for kind in ("intervals", "reliability", "confusion") if f'data-chart="{kind}"' not in page] == []
    text = re.sub('base64,[^"]*', "", page).replace("http-equiv", "")
    assert "http" not in text, "the page needs nothing beside itself"
    said = capsys.readouterr().out
    assert "Test split, scored" in said
    assert "The baseline and 2 recipes on 2 fresh seeds, val_accuracy" in said
    assert "before:" not in said
    assert re.search(r"^rank +recipe +score +changes to the baseline$", said, re.MULTILINE)
    winner, trial = findings["recipes"][0]["label"], findings["test"]["trial"]
    whose = "the baseline" if winner == "baseline" else f"trial {winner}'s recipe"
    seed = replicated.trials.by_number[trial].recipe.seed
    assert f"Exported {whose} of tiny, as trained on seed {seed} (trial {trial:04d} of tiny-confirm) to" in " ".join(
        said.split()
    )

    # The card says of the recipe what page and terminal say, also when it is exported again.
    verdict = re.search("<b>(.*?)</b>", page)[1]
    summary = json.loads((home / "exports" / "tiny-confirm" / "summary.json").read_text())
    assert html.unescape(verdict) == summary["finding"]
    assert summary["finding"] in " ".join(said.split())
    call("export", "tiny-confirm")
    assert json.loads((home / "exports" / "tiny-confirm" / "summary.json").read_text()) == summary

    # A second time nothing is trained, and the data is not loaded: the ledger has the result. Each file is read once.
    with monkeypatch.context() as patched:
        read = count_reads(patched)
        call("confirm", "tiny")
    assert read == Counter({"data": 0, "tiny": 1, "tiny-confirm": 1, "checkpoint": 1})
    assert sum(event.event == "test" for event in read_events(folder.ledger)) == 1

    # Without the searched sweep the export has no such sentence.
    (home / "sweeps" / "tiny").rename(home / "tiny")
    call("export", "tiny-confirm")
    assert "finding" not in json.loads((home / "exports" / "tiny-confirm" / "summary.json").read_text())
    (home / "tiny").rename(home / "sweeps" / "tiny")

    # Even without the confirmation, the ledger of the searched sweep has a record that the test split was used.
    shutil.rmtree(folder.path)
    call("confirm", "tiny", "--top", "1", "--seeds", "2")
    assert "had been scored 1 time before" in capsys.readouterr().out


def test_the_baseline_takes_no_place_of_a_recipe_and_other_baselines_are_recipes(tmp_path, monkeypatch):
    (tmp_path / "made-up.yaml").write_text(SPACE)
    space = load_space(tmp_path / "made-up.yaml")
    # The first two trials, both baselines, are far ahead of the others.
    events = [
        event.model_copy(update={"score": event.score + 1}) if event.event == "report" and event.trial < 2 else event
        for event in simulate(space).events
    ]
    record = SweepRecord(SweepFolder(tmp_path / "made-up"), [make_header("made-up", space), *events])
    best, second, third, *others = [trial for trial in record.trials.ranked() if trial.state == "completed"]
    assert {best.number, second.number} == {0, 1}
    chosen = []
    monkeypatch.setattr(confirmation, "replicate", lambda *given: chosen.append(given[-2]()))
    for top in (2, 100):
        confirmation.confirm(record, top, None, None, None)
    two, every = chosen
    assert two.recipes == {"baseline": best.recipe, second.name: second.recipe, third.name: third.recipe}
    assert two.notes == []
    assert every.notes == [
        f"--top=100: besides the baseline, made-up has {2 + len(others)} different recipes that completed."
    ]


@pytest.mark.slow
def test_the_final_model_is_trained_on_validation_images_too_and_keeps_its_last_epoch(home, sent, monkeypatch):
    import numpy as np

    from training import train as training

    fed = []
    original = training.make_loaders
    monkeypatch.setattr(
        training, "make_loaders", lambda data, *rest, **more: fed.append(data) or original(data, *rest, **more)
    )
    call("confirm", "tiny", "--top", "1", "--seeds", "2", "--final")
    whole, usual = fed[-1], fed[0]
    assert len(whole.train) == len(usual.train) + len(usual.val)
    assert np.array_equal(whole.train.images[len(usual.train) :], usual.val.images)
    assert [data for data in fed[:-1] if len(data.train) > len(usual.train)] == []
    summary = json.loads((home / "exports" / "tiny-final" / "summary.json").read_text())
    scored = json.loads((home / "exports" / "tiny-confirm" / "summary.json").read_text())
    assert summary["trained_on"] == "train and validation"
    assert scored["trained_on"] == "train"
    assert summary["best_epoch"] == 2
    assert scored["test"] is not None
    assert summary["test"] == scored["test"]
    assert "trained on the validation images too" in (home / "exports" / "tiny-final" / "MODEL_CARD.md").read_text()
    weights = [(home / "exports" / name / "model.safetensors").read_bytes() for name in ("tiny-final", "tiny-confirm")]
    assert weights[0] != weights[1]


def test_each_technique_is_switched_alone_and_paired_by_seed(home, sent, capsys):
    call("ablate", "tiny", "--seeds", "2")
    folder = SweepFolder(home / "sweeps" / "tiny-ablate")
    replicated = read_replication(SweepRecord.open(folder))
    winner, baseline = (replicated.by_label[name][0].recipe for name in ("winner", "baseline"))
    assert winner != baseline
    for label, trials in replicated.by_label.items():
        word, _, technique = label.partition(" ")
        if technique:
            base = winner if word == "without" else baseline
            changed = [
                name for name in type(base).model_fields if getattr(base, name) != getattr(trials[0].recipe, name)
            ]
            assert changed == [technique]
    findings = json.loads((folder.path / "ablate.json").read_text())
    scores = replicated.scores()
    for found in findings["techniques"]:
        gaps = [a - b for a, b in zip(scores["winner"], scores[f"without {found['technique']}"], strict=True)]
        assert found["in_winner"]["interval"]["mean"] == pytest.approx(sum(gaps) / 2)
    worth = [found["in_winner"]["interval"]["mean"] for found in findings["techniques"]]
    assert worth == sorted(worth, reverse=True)
    # A narrow terminal with wide intervals has no room for the last column.
    assert re.search(r"^technique +in the winner +in the baseline( +value)?$", capsys.readouterr().out, re.MULTILINE)
    assert (
        "| technique | in the winner | in the baseline | value |\n| --- | --- | --- | --- |\n| "
        in sent[-1]["description"]
    )
    assert (folder.path / "ablate.html").exists()


def test_the_score_on_the_test_split_is_recorded_before_its_picture_is_drawn(home, sent, monkeypatch):
    from analysis.held_out import score_page

    def fail(*_):
        raise ValueError("no font")

    draw = score_page.draw_worst
    monkeypatch.setattr(score_page, "draw_worst", fail)
    with pytest.raises(ValueError, match="no font"):
        call("confirm", "tiny", "--top", "1", "--seeds", "2")
    monkeypatch.setattr(score_page, "draw_worst", draw)
    record = SweepRecord.open(SweepFolder(home / "sweeps" / "tiny-confirm"))
    assert record.test is not None
    call("confirm", "tiny", "--top", "1", "--seeds", "2")
    assert read_replication(SweepRecord.open(record.folder)).source.test_openings == 1


def test_a_trial_of_a_confirmation_is_named_by_the_recipe_that_it_trained_and_its_seed(tmp_path):
    folder = SweepFolder(tmp_path / "quick-1-confirm")
    folder.path.mkdir()
    labels = ["baseline", "0014"]
    ledger = Ledger(folder.ledger)
    recipe = Recipe(seed=3)
    entries = tuple(ReplicationTrial(label=label, recipe=recipe, origin="listed") for label in labels)
    ledger.append(Replication(kind="confirm", of="quick-1", trials=entries))
    ledger.close()
    trials = [Trial(number, recipe, None, "listed", 0.0) for number in range(2)]
    recorded = [name_trial(SweepRecord.open(folder), trial) for trial in trials]
    assert recorded[0] == "the baseline of quick-1, as trained on seed 3 (trial 0000 of quick-1-confirm)"
    assert recorded[1] == "trial 0014's recipe of quick-1, as trained on seed 3 (trial 0001 of quick-1-confirm)"


MISTAKES = {
    "an unknown sweep": (["confirm", "nothing"], "nothing: no such sweep"),
    "one seed": (["confirm", "tiny", "--seeds", "1"], "--seeds=1: an interval needs at least two seeds"),
    "no seed": (["ablate", "tiny", "--seeds", "0"], "--seeds=0"),
    "no recipe": (["confirm", "tiny", "--top", "0"], "--top=0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_in_one_sentence_and_no_file_is_created(mistake, home):
    from training.errors import UserError

    arguments, words = MISTAKES[mistake]
    with pytest.raises(UserError, match=words):
        call(*arguments)
    assert [path.name for path in (home / "sweeps").iterdir()] == ["tiny"]


def test_the_replication_of_a_removed_sweep_is_not_that_of_a_new_one_with_its_name(home):
    from training.errors import UserError

    folder = SweepFolder(home / "sweeps" / "tiny-confirm")
    folder.path.mkdir()
    ledger = Ledger(folder.ledger)
    ledger.append(Replication(of="tiny", of_id="another", seeds=(1, 2), trials=()))
    ledger.close()
    for command in ("confirm", "ablate"):
        with pytest.raises(
            UserError, match="tiny-confirm is of another sweep that was called tiny.* sweep rm tiny-confirm"
        ):
            call(command, "tiny")


def test_without_a_test_part_the_fresh_seeds_alone_are_said_and_nothing_is_opened(home, sent, capsys, monkeypatch):
    from dataclasses import replace

    from training import evaluate

    whole = evaluate.load_data
    monkeypatch.setattr(
        evaluate,
        "load_data",
        lambda spec: (data := whole(spec)) and replace(data, test=data.test.select(np.array([], int))),
    )
    for _ in range(2):  # a second time, nothing is trained, and the same is said
        call("confirm", "tiny", "--top", "1", "--seeds", "2")
        said = " ".join(capsys.readouterr().out.split())
        assert "The data have no test split, so no score on images that nobody chose by." in said
        assert "Exported" in said
    folder = SweepFolder(home / "sweeps" / "tiny-confirm")
    record = SweepRecord.open(folder)
    assert record.test is None
    assert read_replication(record).source.test_openings == 0
    assert json.loads((folder.path / "confirm.json").read_text())["test"] is None
    assert "Test split" not in (folder.path / "confirm.html").read_text()
    assert [set(metrics) for metrics in sent] == [{"confirmed_val_accuracy", "description"}] * 2
    assert json.loads((home / "exports" / "tiny-confirm" / "summary.json").read_text())["test"] is None
    call("confirm", "tiny", "--final")
    final = json.loads((home / "exports" / "tiny-final" / "summary.json").read_text())
    assert (final["trained_on"], final["test"]) == ("train and validation", None)

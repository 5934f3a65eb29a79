"""`sweep compare`: two sweeps in a folder, and the same sweep in two stores."""

import json
import shutil
from dataclasses import fields, replace
from io import StringIO

import pytest
from rich.console import Console

from analysis.effects.technique_effects import FEWEST_OF_LEVEL, fit_sweep, measure_effects
from analysis.loading import load
from analysis.report.findings import find
from analysis.report.sentences import describe_lead
from ledger.events import Extension, TrialAdded
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.settings import Settings
from search.comparing.comparison import (
    Comparison,
    CurvePoint,
    Difference,
    Effect,
    EffectPair,
    Side,
    compare,
    read_sources,
)
from search.comparing.print_comparison import print_comparison
from search.runner.sweep import create_folder, make_header
from search.tracking.writer import Tracking
from spaces.load import load_space
from tests.analysis.made_up import SPACE, simulate
from tests.commands import call, read
from training.errors import UserError
from training.recipe import Recipe

EXPERIMENT = "technique-search"
# Programs of users read these names: add new ones at the end, and never change one.
NAMES = {
    Comparison: ["sweeps", "differences", "curves", "effects", "notes"],
    Side: ["label", "store", "state", "metric", "trials", "best", "score", "standard_error"],
    Difference: ["kind", "field", "values"],
    CurvePoint: ["epoch", "scores", "is_rung"],
    EffectPair: ["parameter", "level", "effects"],
    Effect: ["effect", "low", "high", "verdict"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two simulated sweeps with other seeds, epochs, domains and data. Two stores have their results."""
    home = tmp_path_factory.mktemp("compare")
    space = SPACE.replace("trials: 30", "trials: 16")
    (home / "a.yaml").write_text(space)
    (home / "b.yaml").write_text(space.replace("epochs: 9", "epochs: 12").replace("[0.01, 0.3]", "[0.01, 0.2]"))
    for number, name in enumerate("ab"):
        send_sweep(home, name, number)
    shutil.copy(home / "mlflow.db", home / "other.db")
    return home


def send_sweep(home, name, seed):
    uri, space = f"sqlite:///{home}/mlflow.db", load_space(home / f"{name}.yaml")
    data = {"name": "made-up", "digest": name, "source": "nowhere"}
    header = make_header(name, name, space, Settings(uri, EXPERIMENT, seed), data)
    folder = SweepFolder(home / "sweeps" / name)
    events = simulate(space, seed).events
    create_folder(folder, header, *events)
    made = Tracking(uri, EXPERIMENT, sweep=name, sweep_id=name, metric="val_accuracy", ledger=folder.ledger)
    made.start()
    made.wait_ready()
    made.replay([header, *events])
    assert made.close("completed") == 0


@pytest.fixture(scope="module")
def found(home):
    return compare(read_sources(["a", "b"], home / "sweeps", []))


@pytest.mark.parametrize("kind", NAMES)
def test_the_names_of_the_fields_are_stable(kind):
    assert [field.name for field in fields(kind)] == NAMES[kind]


def test_what_differs_is_named_by_its_field_with_the_value_of_each_sweep(found):
    differs = {(one.kind, one.field): one.values for one in found.differences}
    assert differs["data", "digest"] == ["a", "b"]
    assert differs["settings", "seed"] == [0, 1]
    assert differs["space", "epochs"] == ["9", "12"]
    smoothing = differs["space", "label_smoothing.alpha (label_smoothing[1])"]
    assert "0.3" in smoothing[0]
    assert "0.2" in smoothing[1]
    assert differs["recipe", "epochs"] == [9, 12]
    assert ("recipe", "backbone.name") not in differs
    assert [(kind, _) for kind, _ in differs if kind == "search"] == []


def test_the_curves_are_those_of_the_best_trials_at_the_rungs_and_the_ends(home, found):
    from search.api import open as open_sweep

    best = [open_sweep(name, storage=home / "sweeps").best for name in "ab"]
    assert [side.best for side in found.sweeps] == [trial.number for trial in best]
    points = {point.epoch: point for point in found.curves}
    assert max(points) == 12
    assert points[9].scores == [best[0].score, best[1].reports[8].score]
    assert points[12].scores == [None, best[1].score]
    assert points[1].is_rung == [True, True]
    assert points[12].is_rung == [False, False]


def test_effects_that_both_sweeps_measured_stand_side_by_side(home, found):
    tables = [measure_effects(fit_sweep(load(name, storage=home / "sweeps"))) for name in "ab"]
    rows = [table.set_index(["parameter", "level"]) for table in tables]
    assert found.effects
    for pair in found.effects:
        alone = [table.loc[pair.parameter, pair.level] for table in rows]
        assert [(it.effect, it.low, it.high) for it in pair.effects] == [(it.effect, it.low, it.high) for it in alone]
        assert [it for it in alone if not (it.full >= FEWEST_OF_LEVEL)] == []
    # The two sweeps search other ranges of label smoothing, so they have no such level in common.
    assert [pair for pair in found.effects if pair.parameter == "label_smoothing"] == []


def test_a_note_says_that_the_data_differ(found):
    assert found.notes[0].startswith("The sweeps have different images or splits")
    assert "is " in found.notes[1]
    assert "points" in found.notes[1]


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        ({"digest": "1", "content": "c"}, {"digest": "2", "content": "c"}, ""),
        ({"digest": "1"}, {"digest": "1", "content": "c"}, ""),
        ({"digest": "1"}, {"digest": "2"}, "different images or splits"),
        ({"digest": "1", "content": "c"}, {"digest": "2", "content": "d"}, "different images or splits"),
        ({"digest": "1", "content": "c"}, None, "Not all sweeps recorded an identity of their data"),
        (None, None, "Not all sweeps recorded an identity of their data"),
    ],
)
def test_copies_of_the_same_images_are_the_same_data(home, here, there, words):
    sources = []
    for source, dataset in zip(read_sources(["a", "b"], home / "sweeps", []), (here, there), strict=True):
        header, *events = source.record.events
        record = SweepRecord(source.record.folder, [header.model_copy(update={"dataset": dataset}), *events])
        sources.append(replace(source, record=record))
    notes = compare(sources).notes
    assert words in notes[0]
    assert notes[0].startswith(("The sweeps have", "Not all")) == bool(words)


def test_the_lead_of_each_sweep_has_the_words_of_its_report(home, found):
    for name in "ab":
        findings = find(load(name, storage=home / "sweeps"))
        assert f"{name}: {describe_lead(findings.sweep.metric, findings.lead)}" in found.notes


def test_the_same_sweep_in_two_stores_has_no_difference(home):
    uris = [f"sqlite:///{home}/mlflow.db", f"sqlite:///{home}/other.db"]
    found = compare(read_sources(["b"], home, uris))
    assert [(side.label, side.store) for side in found.sweeps] == [("b (1)", uris[0]), ("b (2)", uris[1])]
    assert found.differences == []
    assert [pair for pair in found.effects if pair.effects[0] != pair.effects[1]] == []
    assert found.effects


@pytest.mark.parametrize("count", [0, 1], ids=["no trial", "a trial that runs"])
def test_a_sweep_without_a_completed_trial_is_compared_as_far_as_it_went(home, tmp_path, count):
    space = load_space(home / "a.yaml")
    for name, events in {"a": simulate(space, 0).events, "young": simulate(space, 1).events[: 2 * count]}.items():
        create_folder(
            SweepFolder(tmp_path / name), make_header(name, name, space, Settings("", EXPERIMENT, 0)), *events
        )
    found = compare(read_sources(["a", "young"], tmp_path, []))
    assert [side.trials for side in found.sweeps] == [16, count]
    assert found.effects == []
    assert "The effects of young are not known: no trial completed." in found.notes
    with pytest.raises(UserError, match=f"none of its {count} trials has completed"):
        load("young", storage=tmp_path).plot.effects()


def test_added_trials_count_and_a_value_that_a_space_does_not_name_is_its_default(home, tmp_path):
    text = (home / "a.yaml").read_text()
    named = "backbone: {weights: none}\n  drop_path: {rate: {uniform: [0.0, 0.2]}}\n  unfreeze"
    (tmp_path / "named.yaml").write_text(text.replace("unfreeze", named).replace("trials: 16", "trials: 14"))
    added = [Extension(trials=1), TrialAdded(request="r", recipe=Recipe())]
    for name, space, events in (
        ("plain", load_space(home / "a.yaml"), []),
        ("named", load_space(tmp_path / "named.yaml"), added),
    ):
        header = make_header(name, name, space, Settings("", EXPERIMENT, 0))
        create_folder(SweepFolder(tmp_path / name), header, *events)
    found = compare(read_sources(["plain", "named"], tmp_path, []))
    differs = {(one.kind, one.field): one.values for one in found.differences}
    assert differs == {
        ("space", "backbone.weights"): ["pretrained", "none"],
        ("space", "drop_path.rate"): ["0.0", "uniform [0.0, 0.2]"],
    }


@pytest.mark.parametrize("width", [80, 200])
def test_the_tables_fit_the_width(found, width):
    out = StringIO()
    print_comparison(found, Console(file=out, width=width))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for words in ("Data that differs", "best score", "Best trials by epoch", "Effects, with 90 % intervals"):
        assert words in text


def test_sweeps_for_which_a_narrow_terminal_has_no_room_follow_in_a_second_table(home):
    uris = [f"sqlite:///{home}/mlflow.db", f"sqlite:///{home}/other.db"]
    found = compare(read_sources(["a", "b"], home, uris))
    assert len(found.sweeps) == 4
    out = StringIO()
    print_comparison(found, Console(file=out, width=80))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    effects = text.partition("Effects, with")[2]
    assert sum(line.startswith("level ") for line in effects.splitlines()) == 2
    assert [side for side in found.sweeps if not (effects.count(side.label) >= 1)] == []
    assert "…" not in effects


def test_the_command_prints_json_alone(home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    plain = json.loads(read(capsys, "compare", "a", "b", "--json"))
    assert list(plain) == NAMES[Comparison]
    assert list(plain["effects"][0]["effects"][0]) == NAMES[Effect]


def test_one_sweep_alone_is_refused(home, monkeypatch):
    monkeypatch.chdir(home)
    with pytest.raises(UserError, match="a: a comparison needs two sweeps"):
        call("compare", "a")
    with pytest.raises(UserError, match=r"c: no such sweep in sqlite.*There are: [ab], [ab]"):
        call("compare", "c", "--from", "sqlite:///other.db")

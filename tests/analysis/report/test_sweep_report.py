"""The report is self-contained, has all results, and reports when there are none."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from analysis.effects.technique_effects import NOT_ENOUGH
from analysis.loading import load
from analysis.reading.run_store import open_experiments
from analysis.report.cautions import list_cautions
from analysis.report.findings import describe_baseline, describe_reach, find
from analysis.report.sentences import describe_lead
from analysis.report.sweep_report import render_report
from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from ledger.tables import make_tables
from search.display.results import _rows, report_sweep
from search.result import choose_page
from tests.commands import call
from training.errors import UserError


@pytest.fixture(scope="module")
def findings(sweep):
    return find(sweep)


@pytest.fixture
def record(storage):
    return SweepRecord.open(SweepFolder(storage / "made-up-1"))


@pytest.fixture(scope="module")
def page(findings) -> str:
    return render_report(findings)


def test_the_page_is_one_self_contained_file(page):
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']+""", page)
    assert "@import" not in page


def test_the_page_begins_with_the_lead_and_the_recipe_of_the_best_trial(findings, page):
    best = findings.sweep.completed.iloc[0]
    lead = page.index(f"The best, {best.trial:04d}, is probably ")
    assert lead < page.index("label_smoothing.alpha=") < page.index("caution") < page.index('id="effects"')


def test_levels_and_interactions_that_may_be_chance_are_folded_away(findings, page):
    assert {"useful", "no effect seen"} <= set(findings.effects.verdict)
    folds = "".join(re.findall(r"<details>.*?</details>", page, re.DOTALL))
    opened = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    assert "no effect seen</span>" in folds
    assert "no effect seen</span>" not in opened
    assert "useful</span>" in opened
    assert "Interactions that may be chance" in folds


def test_the_page_has_verdicts_warnings_and_costs(page):
    for words in ("label_smoothing = alpha 0.01 to 0.3", "harmful", "diverged", "early saved", "ran to full length"):
        assert words in page


def test_the_page_has_the_peak_memory_of_trials_where_it_was_measured(findings, page):
    most = int(findings.sweep.trials.memory_mb.max())
    assert '<th class="n">peak memory</th>' in page
    assert f"{findings.sweep.completed.memory_mb.iloc[0]:,.0f} MB</td>" in page
    assert f"The largest peak memory of a trial was {most:,} MB." in page
    trials = findings.sweep.trials.assign(memory_mb=float("nan"))
    without = render_report(replace(findings, sweep=replace(findings.sweep, trials=trials)))
    assert '<th class="n">peak memory</th>' not in without
    assert "peak memory of a trial" not in without


def test_the_report_says_below_which_size_effects_are_hardly_seen(findings):
    sentence = "With these trials and images, effects below about 2.0 points are hardly seen, and twice as large ones "
    sentence += "mostly are."
    wide = findings.effects.assign(low=findings.effects.effect - 0.02, high=findings.effects.effect + 0.02)
    assert list(describe_reach(replace(findings, effects=wide))) == [sentence]
    assert list(describe_reach(replace(findings, effects=wide.assign(low=float("nan"))))) == []
    assert next(describe_reach(findings)) in render_report(findings)


def test_the_report_names_the_levels_with_too_few_trials_for_a_verdict(findings):
    effects = findings.effects.copy()
    level = effects.index[~effects.detail.astype(bool)][0]
    effects.loc[level, "verdict"] = NOT_ENOUGH
    name = f"{effects.parameter[level]} = {effects.level[level]}"
    words = re.search(
        r"Too few trials of full length for a verdict: ([^<]*)\.</p>", render_report(replace(findings, effects=effects))
    )
    assert name in words[1].split("; ")


def test_the_report_warns_if_best_epochs_score_visibly_more_than_the_last_ones(findings):
    """Made-up scores rise to their last epoch; if the last values are lower by 0.008, the sentence gives this figure."""
    sweep = findings.sweep
    said = lambda one: [line for line in list_cautions(one, findings.lead) if "best epoch" in line]  # noqa: E731
    assert said(sweep) == []
    full = sweep.curves.groupby("trial").epoch.transform("max") == sweep.curves.epoch
    lower = replace(sweep, curves=sweep.curves.assign(val_accuracy=sweep.curves.score - 0.008 * full))
    assert len(said(lower)) == 1
    assert "0.8 points better than its last one" in said(lower)[0]
    last = lower.space.search.model_copy(update={"score": "last"})
    assert said(replace(lower, space=replace(lower.space, search=last))) == []


def test_names_are_escaped(findings):
    named = replace(findings, sweep=replace(findings.sweep, name="<script>alert"))
    assert "<script>alert" not in render_report(named)


@pytest.mark.parametrize("width", [80, 200])
def test_the_summary_fits_the_terminal(record, uri, tmp_path, capsys, width):
    console = Console(width=width, force_terminal=False)
    report_sweep(record, tmp_path / "r.html", console, uri)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    findings = find(make_tables(record))
    assert " ".join(" ".join(lines).split()).startswith(describe_lead(findings.sweep.metric, findings.lead))
    assert "label_smoothing" in " ".join(line for line in lines if line.startswith("useful"))
    assert (tmp_path / "r.html").stat().st_size < 3_000_000


def test_a_sweep_without_a_completed_trial_gives_one_sentence(storage):
    begun = load("begun", storage=storage)
    for state, hint in (
        ("running", r"Wait for it\.$"),
        ("interrupted", rf"Continue with: sweep resume begun --storage {storage}\.$"),
        ("completed", rf"Continue with: sweep resume begun --storage {storage} --trials 10\.$"),
    ):
        with pytest.raises(UserError, match="begun: none of its 1 trials has completed.*compare. " + hint) as caught:
            find(replace(begun, state=state))
        assert "\n" not in str(caught.value)


def test_a_space_without_parameters_gives_one_sentence(sweep):
    plain = replace(sweep, space=replace(sweep.space, recipe={"epochs": 9}))
    with pytest.raises(UserError, match="made-up-1: its space has no search parameters"):
        find(plain)


def test_a_file_that_cannot_be_written_gives_one_sentence(record, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--out"):
        report_sweep(record, tmp_path / "file" / "r.html", Console())


def test_the_page_is_logged_to_the_sweeps_own_run(record, uri, tmp_path):
    import mlflow

    report_sweep(record, tmp_path / "r.html", Console(quiet=True), uri)
    with open_experiments(uri) as opened:
        run = opened.find("made-up-1")
    assert mlflow.artifacts.load_text(f"{run.info.artifact_uri}/report.html") == (tmp_path / "r.html").read_text()


def test_the_terminal_has_a_sentence_and_no_table_where_no_level_has_enough_trials(findings):
    assert len(list(_rows(findings)))
    assert list(_rows(replace(findings, effects=findings.effects.assign(verdict=NOT_ENOUGH)))) == []


def test_the_baseline_is_described_by_its_choices(findings):
    text = describe_baseline(findings.sweep)
    assert "=level=" not in text
    assert "unfreeze" in text
    assert text.count("optimizer.lr=") == 1


def test_a_report_does_not_take_the_place_of_that_of_another_sweep_with_this_name(storage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pages = tmp_path / "reports"
    call("report", "made-up-1", "--storage", str(storage))
    text = (pages / "made-up-1.html").read_text()
    sweep_id = SweepRecord.open(SweepFolder(storage / "made-up-1")).header.id
    other = text.replace(f'content="{sweep_id}"', 'content="another"')
    assert other != text
    (pages / "made-up-1.html").write_text(other)
    own = choose_page("made-up-1", None, sweep_id)
    assert own == Path("reports/made-up-1-2.html")
    own.write_text(text)
    assert choose_page("made-up-1", None, sweep_id) == own  # it is written anew


def test_the_report_as_json_has_the_exact_effects_of_the_page(findings, storage, tmp_path, monkeypatch, capsys):
    from search.cli.main import app

    monkeypatch.chdir(tmp_path)
    arguments = ["report", "made-up-1", "--storage", str(storage)]
    app([*arguments, "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert (found["page"], found["best"]) == ("reports/made-up-1.html", findings.sweep.completed.trial.iloc[0])
    assert found["cautions"] == findings.cautions
    known = {(row.parameter, row.level): row.effect for row in findings.effects.itertuples()}
    assert found["effects"]
    for row in found["effects"]:
        expected = known[row["parameter"], row["level"]]
        assert row["effect"] == expected or (row["effect"] is None and np.isnan(expected))

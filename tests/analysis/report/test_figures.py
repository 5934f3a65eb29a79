"""The interactive figures have the data of the sweep, and work in a browser and in a notebook without a network."""

import base64
import gzip
import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.report.findings import find
from analysis.report.sweep_data import collect_sweep
from analysis.report.sweep_report import render_report
from training.errors import UserError

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def page(sweep) -> str:
    return render_report(find(sweep))


def read_data(page: str) -> dict:
    """Return the data that the page's figures draw."""
    packed = re.search(r'id="sweep-data">([^<]+)</script>', page)[1]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_the_page_has_the_recipe_and_the_curve_of_each_trial(page, sweep):
    data = read_data(page)
    assert data["trials"]["trial"] == sweep.trials.trial.tolist()
    row = data["best"]
    best = sweep.completed.iloc[0]
    recipe = data["fixed"] | {name: values[row] for name, values in data["varying"].items() if values[row] is not None}
    assert recipe == sweep.recipes.loc[best.trial].dropna().to_dict()
    curve = sweep.curves[sweep.curves.trial == best.trial].score
    assert data["curves"][row] == pytest.approx((100 * curve).tolist(), rel=1e-4)


def test_the_axes_have_the_place_of_each_trials_option(sweep):
    level = next(axis for axis in collect_sweep(sweep).axes if axis.name == "unfreeze.level")
    assert [level.options[place] for place in level.values] == sweep.recipes["unfreeze.level"].tolist()


def test_an_option_outside_the_space_has_a_place_of_its_own(sweep):
    trials = sweep.trials.assign(**{"unfreeze.level": ["stem", *sweep.trials["unfreeze.level"][1:]]})
    level = next(axis for axis in collect_sweep(replace(sweep, trials=trials)).axes if axis.name == "unfreeze.level")
    assert level.options[level.values[0]] == "other"


def test_rungs_are_the_epochs_at_which_trials_were_stopped(sweep):
    stopped = sweep.trials[sweep.trials.state == "stopped"]
    rungs = collect_sweep(sweep).rungs
    assert rungs
    assert [(epoch, count) for epoch, count in rungs if (stopped.epochs_done == epoch).sum() != count] == []


def test_the_course_is_the_best_score_of_full_length_after_each_trial_that_ended(sweep):
    ended, best, spent, points = sweep.trials.sort_values("ended"), 0.0, 0, []
    for state, score, epochs in zip(ended.state, ended.score, ended.epochs_done, strict=True):
        best, spent = max(best, score if state == "completed" else 0.0), spent + epochs
        points += [(spent, 100 * best)] if best else []
    assert np.array(collect_sweep(sweep).course) == pytest.approx(np.array(points))


def test_a_page_is_much_smaller_than_two_megabytes(page):
    assert len(page.encode()) < 1_500_000


@pytest.mark.parametrize("kind", ["effects", "curves", "parallel", "scores", "course", "slices"])
def test_a_figure_in_a_notebook_needs_no_other_file(sweep, kind):
    figure = getattr(sweep.plot, kind)()
    frame = figure._repr_html_()
    inside = html.unescape(re.search(r'srcdoc="([^"]+)"', frame)[1])
    assert f'data-chart="{kind}"' in inside
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']+""", inside)
    assert read_data(inside)["trials"]["trial"] == sweep.trials.trial.tolist()


def test_slices_have_the_trials_of_full_length_alone_with_the_scale_of_their_domain(sweep):
    slices = {axis.name: axis for axis in collect_sweep(sweep).slices}
    assert {name: axis.scale for name, axis in slices.items() if axis.scale != "options"} == {
        "optimizer.lr": "log",
        "mixup.alpha": "log",
        "label_smoothing.alpha": "linear",
    }
    full = (sweep.trials.state == "completed").tolist()
    assert [value is not None for value in slices["optimizer.lr"].values] == full
    rates = [value for value in slices["optimizer.lr"].values if value is not None]
    assert rates == sweep.recipes["optimizer.lr"][full].tolist()
    # A trial with the option that has no such field is not at 0, which has no logarithm.
    mixed = ((sweep.recipes["mixup.alpha"] > 0) & np.array(full)).tolist()
    assert [value is not None for value in slices["mixup.alpha"].values] == mixed


def test_a_sweep_with_one_trial_of_full_length_has_no_slices(sweep):
    few = sweep.completed.trial.head(1)
    curves = sweep.curves[sweep.curves.trial.isin(few)]
    small = replace(sweep, trials=sweep.trials[sweep.trials.trial.isin(few)], curves=curves)
    assert 'data-chart="slices"' in render_report(find(sweep))
    assert 'data-chart="slices"' not in render_report(find(small))
    assert "No search parameter has several values among the trials of full length." in small.plot.slices().to_html()


def test_a_figure_can_be_written_to_a_file(sweep, tmp_path):
    path = sweep.plot.curves(by="unfreeze.level", log=True).save(tmp_path / "curves.html")
    settings = html.unescape(re.search(r'data-settings="([^"]*)"', path.read_text())[1])
    assert json.loads(settings) == {"by": "unfreeze.level", "log": True}
    with pytest.raises(UserError, match="path=.*cannot be written to .*Name another place"):
        sweep.plot.curves().save(tmp_path)


def test_an_unknown_column_gives_one_sentence_with_the_known_ones(sweep):
    with pytest.raises(UserError, match="by='levl': this sweep has no such column.*unfreeze.level"):
        sweep.plot.curves(by="levl")
    with pytest.raises(UserError, match="over='cost'.*seconds, memory_mb, ece"):
        sweep.plot.scores(over="cost")


def test_a_sweep_in_a_notebook_shows_its_best_trials_with_escaped_names(sweep):
    shown = replace(sweep, name="<b>")._repr_html_()
    assert "&lt;b&gt;" in shown
    assert f"<td>{sweep.completed.trial.iloc[0]:04d}</td>" in shown


def open_in_browser(text: str, folder: Path, act: str = "", seen: str = "<canvas") -> str:
    """Return the document after its scripts ran, as HTML.

    `act` is a script that runs again and again, because the page may be laid out anew after it; until there is a
    figure, its errors mean nothing. On a busy machine the time of the browser may be over before the page has `seen`.
    """
    repeated = f"<script>setInterval(() => {{ {act} }}, 50)</script></body>"
    for _ in range(3):
        document = _open_once(text.replace("</body>", repeated), folder)
        if seen in document:
            break
    return document


def _open_once(text: str, folder: Path) -> str:
    (folder / "page.html").write_text(text)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,9000", "--virtual-time-budget=8000"]
    command = [
        BROWSER,
        *options,
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
        (folder / "page.html").as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def widths(document: str) -> list[int]:
    """Return the width of each drawn figure in pixels."""
    return [int(width) for width in re.findall(r'<canvas[^>]* width="(\d+)"', document)]


@needs_browser
def test_a_browser_shows_the_table_of_trials_and_the_figures(page, tmp_path, sweep):
    document = open_in_browser(page, tmp_path)
    assert f"{len(sweep.trials)} of {len(sweep.trials)} trials" in document
    assert f'aria-label="Show trial {sweep.completed.trial.iloc[0]:04d}"' in document
    assert len(widths(document)) >= 4
    assert min(widths(document)) > 500


@needs_browser
def test_a_browser_draws_the_figure_of_a_notebook(tmp_path, sweep):
    assert max(widths(open_in_browser(sweep.plot.curves().to_html(), tmp_path))) > 500


@needs_browser
def test_no_trial_of_the_line_over_a_cost_is_beaten_in_both_cost_and_score(tmp_path, sweep):
    act = """
      const chart = echarts.getInstanceByDom(document.querySelector("[_echarts_instance_]"));
      document.body.dataset.front = JSON.stringify(chart.getOption().series.at(-1).data);
    """
    trials = sweep.trials.assign(seconds=10 * (3 * sweep.trials.score.rank(pct=True) + sweep.trials.trial % 2).round())
    document = open_in_browser(replace(sweep, trials=trials).plot.scores().to_html(), tmp_path, act, seen="data-front")
    front = json.loads(html.unescape(re.search(r'data-front="([^"]+)"', document)[1]))
    full = trials[trials.state == "completed"]
    best = (100 * full.groupby("seconds").score.max()).cummax().drop_duplicates()
    assert front == [pytest.approx(point) for point in best.items()]
    assert len(front) > 1


@needs_browser
def test_an_axis_of_effects_has_a_tick_at_both_ends_and_the_others_at_equal_distances(tmp_path, sweep):
    act = """
      const figure = document.querySelector("[_echarts_instance_]");
      const scale = echarts.getInstanceByDom(figure).getModel().getComponent("xAxis").axis.scale;
      document.body.dataset.ticks = JSON.stringify(scale.getTicks().map((tick) => tick.value));
    """
    document = open_in_browser(sweep.plot.effects().to_html(), tmp_path, act, seen="data-ticks")
    ticks = json.loads(html.unescape(re.search(r'data-ticks="([^"]+)"', document)[1]))
    assert len(ticks) > 3
    assert np.ptp(np.diff(ticks)) < 1e-9

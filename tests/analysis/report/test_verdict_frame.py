"""The finding of each page has a verdict as a word and as a colour, which can be read on every chip."""

import re
from dataclasses import replace

import pytest

from analysis.report.findings import describe_winner, find
from analysis.report.page import ASSETS, TEMPLATES, Section, render_page
from analysis.report.sweep_report import render_report
from spaces.load import load_space
from tests.analysis.made_up import SPACE

ENOUGH = 4.5  # contrast of small text by WCAG 2.2, level AA


def read_colours() -> dict[str, str]:
    """Return the first colour of each variable of the style, which is that on a light page."""
    style = (TEMPLATES / "base.html.j2").read_text()
    return dict(reversed(re.findall(r"--(\w+): (#[0-9a-f]{6})", style)))


def brightness(colour: str) -> float:
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, bright = sorted((brightness(one), brightness(other)))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", ["useful", "harmful", "none", "unknown"])
def test_white_text_can_be_read_on_each_chip(name):
    assert contrast(read_colours()[name], "#ffffff") >= ENOUGH


def test_the_numbers_of_a_confusion_matrix_can_be_read_on_the_darkest_field_of_both_themes():
    script = (ASSETS / "sections.js").read_text()
    dark_field, light_field = re.search(r'color: \[page.card, isDark \? "(#\w+)" : "(#\w+)"\]', script).groups()
    assert 'color: isDark ? "#fff" : "#000"' in script
    assert contrast(dark_field, "#ffffff") >= ENOUGH
    assert contrast(light_field, "#000000") >= ENOUGH


@pytest.mark.parametrize("verdict", ["proven", "likely", "open", "none"])
def test_a_page_of_sections_begins_with_its_finding_and_verdict(verdict):
    page = render_page("tiny", [Section(text=["It is better.", "A note."], verdict=verdict)])
    assert f'class="box lead {verdict}"' in page
    assert f'<span class="v {verdict}">{verdict}</span> <b>It is better.</b>' in page
    assert "<p>A note.</p>" in page


def test_the_report_begins_with_its_verdict(sweep):
    page = render_report(find(sweep))
    assert 'class="box lead likely"' in page
    assert page.index('class="box lead') < page.index('id="effects"')


def test_a_report_without_a_better_recipe_than_the_baseline_has_none(sweep):
    trials = sweep.trials[sweep.trials.is_baseline]
    alone = replace(sweep, trials=trials, curves=sweep.curves[sweep.curves.trial.isin(trials.trial)])
    assert 'class="box lead none"' in render_report(find(alone))


def test_a_winner_that_is_a_baseline_is_called_one_and_compared_with_no_other(sweep):
    best = sweep.trials.is_baseline & (sweep.trials.score == sweep.trials.score[sweep.trials.is_baseline].max())
    winner = describe_winner(replace(sweep, trials=sweep.trials.assign(score=sweep.trials.score + best)))
    assert ", a baseline, reached" in winner.sentence
    assert winner.changes == []


def test_the_winner_has_its_choices_and_not_the_fixed_values_of_an_option(tmp_path):
    from analysis.effects.search_parameters import list_parameters
    from analysis.report.choices import list_changes

    path = tmp_path / "space.yaml"
    policy = "augmentation: {choice: [{policy: none}, {policy: affine_colour, translate: 0.1, probability: 0.8}]}"
    path.write_text(SPACE.replace("  unfreeze:", f"  {policy}\n  unfreeze:"))
    parameters = list_parameters(load_space(path).recipe)
    base = {"augmentation.policy": "none", "unfreeze.level": "full", "mixup.alpha": 0.0, "batch_size": 8}
    base |= {"label_smoothing.alpha": 0.0, "optimizer.lr": 0.01}
    winner = base | {"augmentation.policy": "affine_colour", "augmentation.translate": 0.1, "mixup.alpha": 0.25}
    winner |= {"augmentation.probability": 0.8, "batch_size": 16}
    assert list_changes(parameters, winner, base) == ["augmentation=affine_colour", "mixup.alpha=0.25", "batch_size=16"]

"""`sweep train --plan` shows the steps and rates, and trains nothing."""

import pytest

from search.cli.inspect.plan_view import show_plan
from search.display.one_trial import draw_curve
from search.display.tables.columns import make_console
from spaces.load import load_space
from training.errors import UserError


@pytest.fixture
def recipe():
    return load_space("quick", ["epochs=40", "head_lr.factor=10"]).baselines()[0]


def test_the_curve_has_one_character_for_some_steps():
    assert draw_curve((1.0, 0.5, 0.0), 0, 1) == "█▅▁"
    assert len(draw_curve(tuple(range(1, 1001)), 0, 1000)) == 60


def test_the_tables_have_each_group_and_the_first_and_last_epochs(recipe, capsys):
    show_plan(recipe, None, make_console())
    shown = capsys.readouterr().out
    assert "40 epochs of 384 images: 960 optimizer steps." in shown
    rows = [line.strip("│ ").split() for line in shown.splitlines() if line.startswith("│")]
    assert [row[-1] for row in rows[:2]] == ["0.05", "0.005"]
    epochs = [row[0] for row in rows[2:]]
    assert epochs == [*map(str, range(1, 30)), "…", "40"]


def test_the_picture_is_written_or_its_ending_is_refused(recipe, tmp_path, capsys):
    show_plan(recipe, tmp_path / "plan.png", make_console())
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match=r"--picture=.*plan\.foo: Format 'foo' is not supported"):
        show_plan(recipe, tmp_path / "plan.foo", make_console())

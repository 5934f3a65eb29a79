"""The help shows every text as it was written: no bracket is taken for markup."""

import re

import pytest
import typer.rich_utils
from typer.main import get_command

from search.cli.main import app

COMMANDS = get_command(app).commands


def plain(text):
    return re.sub(r"[\s`*]+", "", text)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_all_its_letters(name, monkeypatch, capsys):
    monkeypatch.setattr(typer.rich_utils, "MAX_WIDTH", 4000)
    app([name, "--help"], standalone_mode=False)
    shown = plain(capsys.readouterr().out)
    for text in [COMMANDS[name].help, *(param.help for param in COMMANDS[name].params if param.help)]:
        assert plain(text) in shown, text


def test_the_help_lists_the_commands_in_groups(monkeypatch, capsys):
    monkeypatch.setattr(typer.rich_utils, "MAX_WIDTH", 4000)
    app(["--help"], standalone_mode=False)
    _, *panels = re.split("╭─ (?!Options)", capsys.readouterr().out)
    groups = {panel.split(" ─")[0]: re.findall(r"^│ (\S+)", panel, re.MULTILINE) for panel in panels}
    assert list(groups) == ["Search", "Results", "A running sweep", "Housekeeping"]
    assert "predict" in groups["Results"]
    assert {name for group in groups.values() for name in group} == set(COMMANDS)


def test_an_option_is_declared_once_and_a_new_one_is_a_decision():
    """Raise the number only for an option that no rule can replace."""
    declared = {(*param.opts, param.help) for command in COMMANDS.values() for param in command.params if param.help}
    options = [names for names in declared if names[0].startswith("--")]
    assert len(options) <= 85, sorted(options)

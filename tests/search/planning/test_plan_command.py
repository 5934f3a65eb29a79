"""`sweep plan` ends with the command that starts the sweep."""

import search
from search.cli.main import app
from search.planning.packing import find_room
from search.planning.sweep_plan import plan_sweep
from tests.search.planning.made_up import measure_made_up, prepare


def test_a_plan_ends_with_the_command_of_its_sweep(monkeypatch, capsys):
    prepared = prepare()
    forecast = plan_sweep(prepared, measure_made_up(prepared, lambda target: ""), find_room(prepared), None)
    monkeypatch.setattr(search, "plan", lambda **given: forecast)
    monkeypatch.setenv("COLUMNS", "200")
    arguments = ["quick", "data={name: digits, train_size: 64}", "--trials", "8", "--time-budget", "5m"]
    app(["plan", *arguments, "--price-per-gpu-hour", "2"], standalone_mode=False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "Next: sweep run quick 'data={name: digits, train_size: 64}' --trials 8 --time-budget 5m"

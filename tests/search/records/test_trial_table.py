"""`sweep show --sort --filter --columns`."""

import csv
import io
import json
from io import StringIO

import pytest
from rich.console import Console

from search.records.rows import SweepTable, TrialRow
from search.records.trial_table import TrialTable
from training.errors import UserError


def make_row(trial, state, score, **recipe):
    return TrialRow(trial, trial + 1, state, "", "sampler", score, 0.01, 2, 3, 9, 12.5, 300.0, recipe)


ROWS = [
    make_row(0, "completed", 0.9, **{"optimizer.lr": 0.1, "optimizer.name": "sgd", "flip.on": True}),
    make_row(1, "stopped", 0.8, **{"optimizer.lr": 0.01, "optimizer.name": "adamw", "flip.on": False}),
    make_row(2, "completed", 0.85, **{"optimizer.lr": 0.02, "optimizer.name": "sgd", "optimizer.momentum": 0.9}),
    make_row(3, "failed", None, **{"optimizer.lr": "auto", "optimizer.name": "sgd", "flip.on": True}),
]
TABLE = SweepTable("mine", "completed", "val_accuracy", 4, ROWS, [])


def numbers(sort=None, *filters, columns=None):
    return [row["trial"] for row in TrialTable(TABLE, sort, filters, columns).rows]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["optimizer.name=sgd"], [0, 2, 3]),
        (["optimizer.name != sgd"], [1]),
        (["score>=0.85"], [0, 2]),
        (["score>0.85", "state==completed"], [0]),
        (["recipe.optimizer.momentum<1"], [2]),
        (["optimizer.momentum!=0.5"], [2]),  # the others have no momentum
        (["flip.on=true"], [0, 3]),
        (["optimizer.lr=1e-2"], [1]),
        (["trial>1"], [2, 3]),
    ],
)
def test_trials_that_meet_all_conditions_are_shown(filters, expected):
    assert numbers(None, *filters) == expected


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("score", [1, 2, 0, 3]),  # without a score: last
        ("-score", [0, 2, 1, 3]),
        ("optimizer.lr", [1, 2, 0, 3]),  # numbers before texts
        ("-optimizer.momentum", [2, 0, 1, 3]),
        ("optimizer.name", [1, 0, 2, 3]),
    ],
)
def test_trials_are_ordered_by_a_column(sort, expected):
    assert numbers(sort) == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("optimizer.lt", []), r"--sort: mine has no column 'optimizer.lt'. Did you mean optimizer.lr\?"),
        (("lr", []), r"--sort: mine has no column 'lr'\. Did you mean optimizer\.lr\?"),
        ((None, ["optimiser.lr>1"]), r"--filter: mine has no column 'optimiser.lr'. Did you mean optimizer.lr\?"),
        ((None, [], "trial,scor"), r"--columns: mine has no column 'scor'. Did you mean score\?"),
        ((None, ["score"]), "--filter score: write it as optimizer.lr>0.01"),
        ((None, ["score>"]), "--filter score>: write it as"),
        ((None, ["__import__('os')=1"]), "write it as"),
        ((None, ["score>high"]), "--filter score>high: high is not a number, so it has no order"),
        ((None, ["optimizer.name>1"]), "optimizer.name has the value sgd, which is not a number"),
        ((None, ["flip.on>0"]), "flip.on has the value true, which is not a number"),
    ],
)
def test_a_mistake_names_the_option_and_the_way_out(arguments, words):
    sort, filters, columns = (*arguments, None)[:3]
    with pytest.raises(UserError, match=words):
        TrialTable(TABLE, sort, filters, columns)


def test_the_table_has_the_named_columns_and_the_number_of_trials():
    out = StringIO()
    table = TrialTable(TABLE, "-score", ["optimizer.name=sgd"], "trial,score, optimizer.momentum")
    Console(file=out, width=80).print(table.render(2))
    assert [line.split() for line in out.getvalue().splitlines()] == [
        ["trial", "score", "optimizer.momentum"],
        ["0000", *["90.0", "±", "1.0", "%", "–"]],
        ["0002", *["85.0", "±", "1.0", "%", "0.9"]],
        ["3", "of", "4", "trials,", "2", "of", "them", "above"],
    ]


def test_without_columns_those_of_the_sort_and_the_filters_are_shown_too():
    assert TrialTable(TABLE, "optimizer.lr", ["flip.on=true"], None).columns[-2:] == ["optimizer.lr", "flip.on"]


def test_csv_and_json_have_the_chosen_trials_unrounded():
    table = TrialTable(TABLE, "-score", ["score>0"], "score,optimizer.lr")
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert rows[0] == {"score": "0.9", "optimizer.lr": "0.1"}
    plain = json.loads(table.to_json())
    assert [row["trial"] for row in plain["trials"]] == [0, 2, 1]
    whole = TrialTable(TABLE, None, [], None)
    assert whole.to_csv().splitlines()[0].startswith("trial,rank,state")


def test_a_column_that_no_trial_has_a_text_for_is_shown_with_dashes():
    console = Console(file=StringIO(), width=80)
    console.print(TrialTable(TABLE, None, ["state=completed"], "trial,reason").render(9))
    header, *rows, count = console.file.getvalue().splitlines()
    assert header.split() == ["trial", "reason"]
    assert {row.split()[1] for row in rows} == {"–"}
    assert count.endswith("trials")


def test_columns_without_room_are_left_out_from_the_right_and_named():
    def show(width):
        console = Console(file=StringIO(), width=width)
        console.print(TrialTable(TABLE, None, [], "trial,score,optimizer.name,optimizer.lr,state").render(9))
        return console.file.getvalue()

    wide, narrow = show(80), show(40)
    assert "no room" not in wide
    assert narrow.splitlines()[0].split() == ["trial", "score", "optimizer.name"]
    assert " 0001  80.0 ± 1.0 %           adamw\n" in narrow
    assert "There is no room for optimizer.lr, state." in " ".join(narrow.split())
    assert "…" not in wide + narrow

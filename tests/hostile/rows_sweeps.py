"""Sweeps that are not there, not whole or not finished, and wrong options: the row's name, the command, its words."""

from __future__ import annotations

NAMED = {
    "show": "show {}",
    "resume": "resume {}",
    "extend": "extend {} --trials 3",
    "stop": "stop {}",
    "rm": "rm --yes {}",
    "export": "export {}",
    "confirm": "confirm {}",
    "ablate": "ablate {}",
}
COMMANDS = [*NAMED, "report", "run", "space", "techniques", "data", "train", "predict", "list", "ui"]
NEED_A_WORD = [*NAMED, "report", "run", "data", "train", "predict"]
HAVE_A_STORE = ["run quick", "train recipe.yaml", "report done-1", "ui"]
DAMAGED = {
    "garbage": "ledger.jsonl:5",
    "binary": "ledger.jsonl:1",
    "newer": "format 2",
    "text-format": "format 1",
}

SWEEPS = {
    **{f"{command} an unknown sweep": (line.format("nothing"), "nothing: no such sweep", "There are: ", "done-1") for command, line in NAMED.items()},
    **{f"{command} an unknown sweep where there is none": (f"{line.format('nothing')} --storage empty", "nothing: no such sweep", "sweep run") for command, line in NAMED.items()},
    **{f"{command} with an option that there is not": (f"{command} --colour", "No such option: --colour", f"sweep {command} --help") for command in COMMANDS},
    **{f"{command} without a word": (command, "Missing argument", f"sweep {command} --help") for command in NEED_A_WORD},
    **{f"{line.split()[0]} on a store of no known kind": (f"{line} --tracking-uri ftp://store", "--tracking-uri", "ftp://store", "sqlite:///mlflow.db") for line in HAVE_A_STORE},
    **{f"show a damaged sweep: {name}": (f"show {name} --storage damaged", f"damaged/{name}", words) for name, words in DAMAGED.items()},
    **{f"resume a damaged sweep: {name}": (f"resume {name} --storage damaged", f"damaged/{name}", words) for name, words in DAMAGED.items()},
    # The command itself.
    "a misspelt command": ("rnu quick", "rnu", "Did you mean 'run'?", "sweep --help"),
    "a space for a command": ("quick", "No such command 'quick'", "sweep --help"),
    "an empty command": ("''", "No such command", "sweep --help"),
    "an unknown option before the command": ("--verbose run quick", "No such option: --verbose", "sweep --help"),
    "a command with a control character": ("'ru\x1bn'", "No such command", "sweep --help"),
    # Options of run.
    "no trials by option": ("run quick --trials 0", "--trials=0", "above 0"),
    "negative trials by option": ("run quick --trials -4", "--trials=-4", "above 0"),
    "half a trial": ("run quick --trials 1.5", "--trials=1.5", "whole number"),
    "trials in words": ("run quick --trials many", "--trials=many", "whole number"),
    "trials that are no number": ("run quick --trials nan", "--trials=nan", "whole number"),
    "trials in hexadecimal": ("run quick --trials 0x10", "--trials=0x10", "whole number"),
    "trials that are empty": ("run quick --trials ''", "--trials=", "whole number"),
    "an option without its value": ("run quick --trials", "--trials", "requires an argument", "sweep run --help"),
    "an option in capitals": ("run quick --Trials 3", "--Trials", "--trials"),
    "an option with one dash": ("run quick -trials 3", "-t"),
    "a time without a unit": ("run quick --time-budget 90", "--time-budget=90", "90s, 15m, 2h"),
    "a time of nothing": ("run quick --time-budget 0s", "--time-budget=0s", "90s, 15m, 2h"),
    "a negative time": ("run quick --time-budget=-5m", "--time-budget=-5m", "90s, 15m, 2h"),
    "a time in words": ("run quick --time-budget soon", "--time-budget=soon", "90s, 15m, 2h"),
    "a time in days": ("run quick --time-budget 2d", "--time-budget=2d", "90s, 15m, 2h"),
    "a time with a fraction": ("run quick --time-budget 1.5h", "--time-budget=1.5h", "1h30m"),
    "a time in the wrong order": ("run quick --time-budget 30m1h", "--time-budget=30m1h", "1h30m"),
    "a time with a blank": ("run quick --time-budget '2 h'", "--time-budget=2 h", "2h"),
    "a time that is empty": ("run quick --time-budget ''", "--time-budget=", "2h"),
    "a time of 400 digits": (f"run quick --time-budget {'9' * 400}s", "--time-budget=", "2h"),
    "a time in Arabic digits": ("run quick --time-budget ٣h", "--time-budget=٣h", "2h"),
    "resume with a time in words": ("resume cut-1 --time-budget soon", "--time-budget=soon", "2h"),
    "extend with a time in words": ("extend done-1 --trials 3 --time-budget soon", "--time-budget=soon", "2h"),
    "no CPU": ("run quick --cpus-per-trial 0", "--cpus-per-trial=0", "above 0"),
    "a negative CPU": ("run quick --cpus-per-trial=-1", "--cpus-per-trial=-1", "above 0"),
    # Sweeps by name.
}  # fmt: skip

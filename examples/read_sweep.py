"""Read a finished sweep as tables: its best trials, and the effect of each technique.

python examples/read_sweep.py quick-1                              # a sweep that ran in this folder
python examples/read_sweep.py quick-1 http://mlflow-host:5000      # a sweep on a server
"""

from __future__ import annotations

import sys

from analysis import load
from analysis.effects.technique_effects import fit_sweep, measure_effects


def main(name: str, tracking_uri: str | None = None) -> None:
    sweep = load(name, tracking_uri)
    print(f"{name}: {len(sweep.trials)} trials, {len(sweep.completed)} of full length, score {sweep.metric}")

    print("\nThe best trials")
    print(sweep.completed[["trial", "score", "standard_error", "optimizer.lr"]].head(5).to_string(index=False))

    print("\nThe curve of the best trial")
    best = sweep.completed.iloc[0].trial
    print(sweep.curves[sweep.curves.trial == best][["epoch", "score", "train_loss"]].to_string(index=False))

    print("\nThe effect of each level compared with the baseline, with 90 % intervals")
    effects = measure_effects(fit_sweep(sweep))
    columns = ["technique", "level", "verdict", "effect", "low", "high"]
    print(effects[~effects.detail][columns].to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What a sweep expects of its best trial, or of the mean of its best, beside what that has on other photographs.

    python benchmarks/claims.py [--draws 150]

`curves/answers.npz` has what 30 recipes at random of the preset `best` say of 600 photographs of each of four sets, after
seven epochs of `tf_efficientnet_lite0` on 320 others. Each draw takes some of the recipes as the completed trials of a
sweep, and 80 of the photographs as its validation images. The truth is the accuracy on the rest.
"""

import argparse
from pathlib import Path

import numpy as np

from analysis.effects.lead import expect_score, soften
from analysis.report.sentences import NORMAL_90
from training.score_metrics import SOFT

ANSWERS, IMAGES = Path(__file__).parent / "curves" / "answers.npz", 80
SWEEPS = ((2, 1), (4, 1), (8, 1), (16, 1), (30, 1), (4, 2), (8, 3), (16, 4), (30, 4))  # trials, members of the mean


def rate(shares: np.ndarray, labels: np.ndarray) -> float:
    """Return the accuracy of the mean of some models; `shares` is (models, images, classes)."""
    return float((shares.sum(0, dtype=int).argmax(1) == labels).mean())


def measure(metric: str, labels: np.ndarray, shares: np.ndarray, count: int, order: np.ndarray) -> list[float]:
    """Return what a choice by `metric` has on others, its luck, and what is left of it, with whether 90 % intervals hold."""
    seen, rest = order[:IMAGES], order[IMAGES:]
    scores = soften(shares[:, seen], labels[seen]) if metric in SOFT else shares[:, seen].argmax(2) == labels[seen]
    taken = shares[np.argsort(-scores.mean(1), kind="stable")]
    known = tuple(labels[seen].tolist())
    truth, score = (rate(taken[:count, part], labels[part]) for part in (rest, seen))
    found = expect_score(metric, [(known, one.tobytes().hex()) for one in taken[:, seen]], count)
    assert found is not None
    error, luck, left = np.sqrt(score * (1 - score) / IMAGES), score - truth, found[0] - truth
    return [truth, luck, abs(luck) <= NORMAL_90 * error, left, abs(left), abs(left) <= NORMAL_90 * found[1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=150, help="of each set")
    draws, sets = parser.parse_args().draws, dict(np.load(ANSWERS))
    names = sorted({name.partition(".")[0] for name in sets})
    print("| chosen by | trials | mean of | unseen | score − truth | in 90 % | expected − truth | distance | in 90 % |")
    print("|---|---|---|---|---|---|---|---|---|")
    for trials, count in SWEEPS:
        for metric in ("val_accuracy", "val_soft_accuracy"):
            rng, rows = np.random.default_rng([trials, count]), []
            for name in [name for name in names for _ in range(draws)]:
                labels, shares = sets[f"{name}.labels"], sets[f"{name}.shares"]
                taken = shares[rng.permutation(len(shares))[:trials]]
                rows.append(measure(metric, labels, taken, count, rng.permutation(len(labels))))
            truth, luck, held, left, near, kept = np.mean(rows, axis=0)
            print(
                f"| {metric} | {trials} | {count} | {truth:.1%} | {100 * luck:+.1f} | {held:.0%} "
                f"| {100 * left:+.1f} | {100 * near:.1f} | {kept:.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

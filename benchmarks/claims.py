"""What a report expects of its best recipe, beside its test score: recorded trainings of `curves/photos.jsonl` as sweeps.

    python benchmarks/claims.py --draws 150

Each draw takes some of the 398 recipes that ran to full length as a sweep, and adds the noise of fewer validation images.
All trainings have the same images, so they share a part of it; `own` is the part that each has for itself. The truth is the
test score, on 1,000 other images, of the recipe with the best score. The last column is what the choice of the recipe
with the best expected score, in place of the best score, gains in test score.
"""

import argparse
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from search_quality import Curves

from analysis.effects.design import Design
from analysis.effects.effect_model import fit_model
from analysis.effects.search_parameters import SearchParameter, encode
from analysis.effects.technique_effects import Fitted
from analysis.report.sentences import NORMAL_90
from spaces.parameters.domains import Choice, Domain, Interval, LogUniform

CURVES, IMAGES = Path(__file__).parent / "curves" / "photos.jsonl", 2000  # validation images of the recording


def read_domain(words: dict[str, list[float]]) -> Domain:
    ((kind, values),) = words.items()
    return Choice(tuple(values)) if kind == "choice" else LogUniform(*values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=150)
    draws = parser.parse_args().draws
    curves = Curves.load(CURVES)
    full = [one for one in curves.configurations if len(one.scores) == one.length and one.test is not None]
    parameters = [SearchParameter(name, read_domain(words)) for name, words in curves.domains.items()]
    recipes = pd.DataFrame([one.params for one in full])
    points = encode(parameters, recipes)
    is_choice = np.array([not isinstance(parameter.domain, Interval) for parameter in parameters])
    scores, tests = np.array([one.best for one in full]), np.array([one.test for one in full])
    truth = tests + scores.mean() - tests.mean()  # a best epoch scores more than a test
    share = scores.mean() * (1 - scores.mean())
    print(f"{len(full)} recipes, {draws} draws\n")
    print("| own | images | trials | score − truth | in 90 % | expected − truth | in 90 % | gain of the choice |")
    print("|---|---|---|---|---|---|---|---|")
    for own, images, trials in product((0.16, 0.5), (75, 300), (4, 8, 16, 32)):
        rng = np.random.default_rng([images, trials])
        error, added = np.sqrt(share / images), np.sqrt(share * (1 / images - 1 / IMAGES))
        rows = []
        for _ in range(draws):
            places = rng.choice(len(full), trials, replace=False)
            noise = np.sqrt(own) * rng.standard_normal(trials) + np.sqrt(1 - own) * rng.standard_normal()
            seen, taken = scores[places] + added * noise, points.iloc[places]
            errors = np.full(trials, error)
            design = Design(parameters, taken, recipes.iloc[places], seen, errors, taken.iloc[0], recipes, 1)
            fitted = Fitted(design, fit_model(seen, design.similarities, is_choice, error))
            expected = [fitted.draw_score(place) for place in range(trials)]
            best, chosen = int(seen.argmax()), int(np.argmax([one.mean() for one in expected]))
            luck, left = seen[best] - truth[places[best]], expected[best].mean() - truth[places[best]]
            held = abs(left) <= NORMAL_90 * np.hypot(expected[best].std(), error)
            rows.append((luck, abs(luck) <= NORMAL_90 * error, left, held, tests[places[chosen]] - tests[places[best]]))
        table = np.array(rows, dtype=float)
        means, gain_error = table.mean(axis=0), table[:, 4].std() / np.sqrt(draws)
        luck, in_score, left, in_expected, gain = means
        print(
            f"| {own} | {images} | {trials} | {100 * luck:+.1f} | {in_score:.0%} | {100 * left:+.1f} | {in_expected:.0%} "
            f"| {100 * gain:+.2f} ± {100 * gain_error:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

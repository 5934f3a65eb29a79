"""A study on photographs: does the search find better recipes sooner, and are its report's effects true?

    python benchmarks/study.py --photos FOLDER --folder WORK [--stage STAGE]... [PATH=VALUE ...]

Half of the folder's classes pre-train a small backbone, the others are what it is fine-tuned on. `record` trains random
recipes to the end; `search` and `verdict` replay these trainings; `winner` is a real sweep with everything that follows
it, and `others` runs it with further seeds, beside as many searches with Ray Tune alone; `page` writes docs/study.md, its
pictures and the recorded set. The results stay in WORK, and a second call does what is missing. PATH=VALUE changes the
space (study_parts/space.yaml) for all stages. Needs no network.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.study_parts.backbone import pretrain
from benchmarks.study_parts.judging import judge_all
from benchmarks.study_parts.page import write_page
from benchmarks.study_parts.photos import TUNED, Sizes, divide, read_test
from benchmarks.study_parts.pictures import draw_all
from benchmarks.study_parts.recording import load_study_space, read_recordings, record, study_overrides, write_set
from benchmarks.study_parts.results import SEARCHES, SET, VERDICTS, Study
from benchmarks.study_parts.searching import replay_all
from benchmarks.study_parts.stock import run_stock
from benchmarks.study_parts.winner import Plan, run_more, run_winner
from spaces.space import Space
from training.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("record", "search", "verdict", "winner", "others", "page")


@dataclass(frozen=True)
class Amounts:
    """How much is done: epochs of the pre-training, random recipes, replayed searches and sweeps, real searches."""

    backbone_epochs: int = 30
    recipes: int = 400
    seeds: int = 100
    sweeps: int = 50
    sweep_trials: int = 64
    searches: int = 4
    jobs: int = 1


def run_study(
    photos: Path,
    folder: Path,
    stages: list[str],
    overrides: list[str],
    *,
    sizes: Sizes,
    amounts: Amounts,
    plan: Plan,
    source: str,
    out: Path = ROOT,
) -> None:
    """Do the stages that are named. The page and the recorded set are written below `out`.

    Raises:
        UserError: the photographs or the space cannot be used.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"photos": str(photos), "source": source, "overrides": overrides, **asdict(sizes)}
    _keep_settings(folder, settings, amounts)
    if not (folder / TUNED).exists():
        divide(photos, folder, sizes)
    space = load_study_space(folder, overrides)
    pretrain(space.baselines()[0], folder, amounts.backbone_epochs)
    if "record" in stages:
        record(space, folder, amounts.recipes, amounts.jobs)
    set_file = folder / SET
    if not {"search", "verdict"}.isdisjoint(stages) or not set_file.exists():
        _renew_set(space, folder, sizes)
    if "search" in stages:
        runs = replay_all(set_file, folder, amounts.seeds, amounts.jobs)
        (folder / SEARCHES).write_text(json.dumps([asdict(run) for run in runs]))
    if "verdict" in stages:
        judge_all(set_file, space, amounts.sweeps, amounts.sweep_trials).to_json(folder / VERDICTS, orient="records")
    if "winner" in stages:
        run_winner(folder, study_overrides(folder, overrides), plan)
    if "others" in stages:
        run_more(folder, study_overrides(folder, overrides), plan, amounts.searches)
        run_stock(folder, overrides, plan.trials, amounts.searches)
    if "page" in stages:
        study = Study.read(folder)
        (out / "docs").mkdir(parents=True, exist_ok=True)
        draw_all(folder, out / "docs", study.runs, study.curves, study.winner)
        (out / "benchmarks" / "curves").mkdir(parents=True, exist_ok=True)
        shutil.copy(set_file, out / "benchmarks" / "curves" / SET)
        write_page(study, out / "docs" / "study.md")


def _renew_set(space: Space, folder: Path, sizes: Sizes) -> None:
    """Write what is recorded so far as a set, and remove the results on an earlier one.

    Raises:
        UserError: nothing is recorded.
    """
    recordings = read_recordings(folder)
    if not recordings:
        raise UserError(f"--folder {folder}: nothing is recorded there. Name the stage record first.")
    before = (folder / SET).read_bytes() if (folder / SET).exists() else b""
    write_set(recordings, space, (sizes.val, len(read_test(folder)[0])), folder / SET)
    if (folder / SET).read_bytes() != before:
        for name in (SEARCHES, VERDICTS):
            (folder / name).unlink(missing_ok=True)


def _keep_settings(folder: Path, settings: dict[str, object], amounts: Amounts) -> None:
    """Write the settings down, and refuse other photographs, sizes or overrides where there are results already."""
    kept = folder / "settings.json"
    if kept.exists():
        known = json.loads(kept.read_text())
        if other := next((name for name in settings if settings[name] != known.get(name)), None):
            raise UserError(
                f"--folder {folder}: it holds a study with {other}={known.get(other)}, not {settings[other]}. "
                "Give another folder."
            )
    kept.write_text(json.dumps(settings | {"recipes": amounts.recipes}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="PATH=VALUE", help="changes of the space, as in sweep run")
    parser.add_argument("--photos", type=Path, required=True, help="a folder of images with at least four classes")
    parser.add_argument("--folder", type=Path, required=True, help="where the results are kept")
    parser.add_argument(
        "--stage", action="append", choices=STAGES, help="what to do; default: all stages in this order"
    )
    parser.add_argument("--source", default="of the author's own", help="where the photographs come from, for the page")
    parser.add_argument("--train", type=int, default=Sizes.train, help="training images")
    parser.add_argument("--val", type=int, default=Sizes.val, help="validation images")
    parser.add_argument("--recipes", type=int, default=Amounts.recipes, help="random recipes to record")
    parser.add_argument("--seeds", type=int, default=Amounts.seeds, help="replayed searches of each method")
    parser.add_argument("--sweeps", type=int, default=Amounts.sweeps, help="replayed sweeps whose report is judged")
    parser.add_argument("--trials", type=int, default=Plan.trials, help="trials of the real sweep")
    parser.add_argument("--searches", type=int, default=Amounts.searches, help="real searches beside those of others")
    parser.add_argument("--jobs", type=int, default=1, help="processes of the recording and of the replays")
    args = parser.parse_args()
    try:
        run_study(
            args.photos.resolve(),
            args.folder.resolve(),
            args.stage or list(STAGES),
            args.overrides,
            sizes=Sizes(args.train, args.val),
            amounts=Amounts(
                recipes=args.recipes, seeds=args.seeds, sweeps=args.sweeps, searches=args.searches, jobs=args.jobs
            ),
            plan=Plan(trials=args.trials),
            source=args.source,
        )
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

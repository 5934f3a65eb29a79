"""`sweep confirm` and `sweep ablate` on real Ray, as a user calls them."""

import json
import shutil

import pytest

from ledger.folder import SweepFolder
from ledger.record import SweepRecord
from search.evaluation.replications.replication import read_replication
from tests.real_sweeps import FAST, call

pytestmark = pytest.mark.timeout(1800)  # two drivers, each with workers that import the whole stack


@pytest.mark.slow
def test_confirm_and_ablate_are_sweeps_of_their_own_in_folder_ledger_and_mlflow(trained_sweep, tmp_path):
    from mlflow import MlflowClient

    shutil.copytree(trained_sweep.path.parent, tmp_path / "sweeps")
    said = call(tmp_path, "confirm", "tiny", "--top", "1", "--seeds", "2")
    assert "Test split, scored" in said
    call(tmp_path, "ablate", "tiny", "--seeds", "2", command=FAST)
    store = json.loads((tmp_path / "sweeps" / "tiny" / "ledger.jsonl").read_text().splitlines()[1])["settings"]
    client = MlflowClient(store["tracking_uri"])
    experiment = client.get_experiment_by_name("technique-search").experiment_id
    for kind, metric in (("confirm", "test_accuracy"), ("ablate", "worth_optimizer")):
        folder = SweepFolder(tmp_path / "sweeps" / f"tiny-{kind}")
        replicated = read_replication(SweepRecord.open(folder))
        assert replicated.scores().keys() == replicated.by_label.keys()
        runs = client.search_runs([experiment], f"tags.sweep = '{folder.name}'")
        parent, *others = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
        assert others == []
        assert {run.info.status for run in runs} == {"FINISHED"}
        assert sorted(run.data.params["seed"] for run in runs if run is not parent) == sorted(
            str(seed) for seed in replicated.event.seeds for _ in replicated.by_label
        )
        assert metric in parent.data.metrics
        assert f"{kind}.html" in [file.path for file in client.list_artifacts(parent.info.run_id)]
        if kind == "confirm":  # the ablation uses the fast trainer, which does not read the images
            assert [run for run in runs if not run.inputs.dataset_inputs] == []
    called = call(tmp_path, "list")
    assert "tiny-confirm" in called

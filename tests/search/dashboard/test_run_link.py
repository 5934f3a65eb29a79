"""The link to the sweep's run is found in MLflow's own server."""

from mlflow import MlflowClient

from search.dashboard.run_link import RunLink


def test_the_link_leads_to_the_sweeps_own_run_and_not_to_that_of_a_trial(serve_mlflow, tmp_path):
    uri = f"http://127.0.0.1:{serve_mlflow(f'sqlite:///{tmp_path}/mlflow.db')}"
    client = MlflowClient(uri)
    experiment = client.create_experiment("technique search")
    parent = client.create_run(experiment, tags={"sweep_id": "7"}).info.run_id
    client.create_run(experiment, tags={"sweep_id": "7", "mlflow.parentRunId": parent})
    link = RunLink(uri, "technique search", "7")
    link.look()
    assert link.found == f"{uri}/#/experiments/{experiment}/runs/{parent}"


def test_there_is_no_link_to_a_server_that_does_not_answer_or_to_a_file():
    link = RunLink("http://127.0.0.1:9", "technique-search", "7")
    link.look()
    assert link.found == ""
    assert RunLink("sqlite:///mlflow.db", "technique-search", "7").address == ""

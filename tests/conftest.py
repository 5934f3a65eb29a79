import os
import signal
import threading

import pytest

os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # no test starts Ray by a call of it; before its import, which reads this


def pytest_collection_modifyitems(items):
    """Put files with slow tests first: one that begins last would keep a single worker busy at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def hang_up_ends():
    """`nohup` makes every child ignore SIGHUP, also the commands whose end by this signal is tested."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session", autouse=True)
def own_homes(tmp_path_factory):
    """The tests use folders of their own; the processes of one session share the cache, so letters are learnt once."""
    session = tmp_path_factory.getbasetemp()
    shared = session.parent if "PYTEST_XDIST_WORKER" in os.environ else session
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(shared / "cache-home"))
        patched.setenv("XDG_STATE_HOME", str(session / "state-home"))
        yield


@pytest.fixture(autouse=True)
def own_environment():
    """Each test starts with the same variables: libraries set some for the whole process, such as MLflow its store."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def serve_mlflow(tmp_path, monkeypatch):
    """A function that serves a store by MLflow's own server in this process, and returns the server's port.

    With `artifacts` the server itself reads and writes the artifacts at that place, such as `s3://bucket`.
    """
    servers = []

    def serve(uri: str, artifacts: str = "") -> int:
        monkeypatch.setenv("_MLFLOW_SERVER_FILE_STORE", uri)
        root = "mlflow-artifacts:/" if artifacts else str(tmp_path / "artifacts")
        monkeypatch.setenv("_MLFLOW_SERVER_ARTIFACT_ROOT", root)
        monkeypatch.setenv("_MLFLOW_SERVER_ARTIFACT_DESTINATION", artifacts)
        monkeypatch.setenv("_MLFLOW_SERVER_SERVE_ARTIFACTS", str(bool(artifacts)).lower())
        from mlflow.server import app, handlers
        from werkzeug.serving import make_server

        # MLflow keeps the first store of a process, which may be that of another test.
        for name in ("_tracking_store", "_model_registry_store", "_artifact_repo"):
            monkeypatch.setattr(handlers, name, None)
        servers.append(made := make_server("127.0.0.1", 0, app, threaded=True))
        threading.Thread(target=made.serve_forever, daemon=True).start()
        return made.server_port

    yield serve
    for made in servers:
        made.shutdown()
    if servers:
        import mlflow

        mlflow.set_tracking_uri(None)  # the server sets it, also in MLFLOW_TRACKING_URI, for the whole process

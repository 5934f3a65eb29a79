"""A secret stays in the environment: no address is written or shown with its password."""

from __future__ import annotations

import io
import logging
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ledger.formatting import mask_secrets
from ledger.secrets import complete_uri, mask_logs
from search.arguments import absolute_uri
from search.cli import main as cli
from tests.real_sweeps import FAST, make_user_folder, start
from training.errors import UserError

PLANTED = "pl4nted"
SPACE = """
format: 1
recipe:
  data: {name: digits, train_size: 64}
  backbone: {name: test_resnet, weights: none}
  epochs: 1
  label_smoothing: {alpha: {uniform: [0.0, 0.3]}}
search: {trials: 4, scheduler: {name: none}}
"""


@pytest.fixture(autouse=True)
def no_secret(monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://ana:pl4nted@host:5000/x", "http://ana:***@host:5000/x"),
        ("https://pl4nted@host", "https://***@host"),
        ("http://ana:pl4@nted@host/a?b=c@d", "http://ana:***@host/a?b=c@d"),
        ("postgresql+psycopg2://ana:pl4nted@host/mlflow", "postgresql+psycopg2://ana:***@host/mlflow"),
        ("mysql://ana:a/pl4nted?x@host:3306/mlflow", "mysql://ana:***@host:3306/mlflow"),
        (
            "postgresql://host/mlflow?user=ana&password=pl4nted&x=1",
            "postgresql://host/mlflow?user=ana&password=***&x=1",
        ),
        ("https://host/images?sig=pl4nted", "https://host/images?sig=***"),
        (
            "request to http://ana:pl4nted@host/api failed ('pl4in')",
            "request to http://ana:***@host/api failed ('pl4in')",
        ),
    ],
)
def test_passwords_and_tokens_of_addresses_are_masked(text, shown):
    assert mask_secrets(text) == shown
    assert mask_secrets(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:////home/ana@work/ml:flow@x/mlflow.db",
        "http://host:5000/runs/a@b",
        "postgresql://ana@host:5432/mlflow",
        "file:///data/a:b@c",
        "write to ana:x@host",
        "models:/digits@champion",
        "?passfile=/home/ana/.pgpass",
    ],
)
def test_text_without_a_secret_stays_unchanged(text):
    assert mask_secrets(text) == text


def test_a_password_on_the_command_line_is_refused_and_one_in_the_environment_is_used(monkeypatch):
    uri = f"http://ana:{PLANTED}@host:5000"
    with pytest.raises(
        UserError, match=r"^--tracking-uri http://ana:\*\*\*@host:5000: .*Set MLFLOW_TRACKING_URI"
    ) as refused:
        absolute_uri(uri)
    assert PLANTED not in str(refused.value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert absolute_uri(uri) == uri


def test_a_resume_takes_the_password_from_the_environment(monkeypatch):
    kept = "http://ana:***@host:5000"
    with pytest.raises(
        UserError, match=r"this sweep logs to http://ana:\*\*\*@host:5000, and a ledger never keeps a password"
    ):
        complete_uri(kept)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://ana:{PLANTED}@another:5000")
    with pytest.raises(
        UserError, match="Set MLFLOW_TRACKING_URI to the whole address, or MLFLOW_TRACKING_USERNAME and"
    ):
        complete_uri(kept)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://ana:{PLANTED}@host:5000")
    assert complete_uri(kept) == f"http://ana:{PLANTED}@host:5000"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ana")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PLANTED)
    assert complete_uri(kept) == "http://host:5000"
    with pytest.raises(UserError, match="Set MLFLOW_TRACKING_URI to the whole address, and run"):
        complete_uri("postgresql://ana:***@host/mlflow")  # only a server has a user name and a password


def test_an_unmasked_address_in_a_ledger_is_used_unchanged():
    for uri in ("sqlite:////data/mlflow.db", f"http://ana:{PLANTED}@host:5000"):
        assert complete_uri(uri) == uri


def test_every_log_record_is_masked_with_its_traceback():
    factory, screen = logging.getLogRecordFactory(), io.StringIO()
    handler, logger = logging.StreamHandler(screen), logging.getLogger("another.library")
    logger.addHandler(handler)
    try:
        mask_logs()
        try:
            raise ValueError(f"http://ana:{PLANTED}@host does not answer")
        except ValueError:
            logger.exception("Asked %s", f"http://ana:{PLANTED}@host")
    finally:
        logging.setLogRecordFactory(factory)
        logger.removeHandler(handler)
    shown = screen.getvalue()
    assert "Asked http://ana:***@host" in shown
    assert "ValueError: http://ana:***@host does not answer" in shown
    assert PLANTED not in shown


@pytest.mark.parametrize(("kind", "code"), [(UserError, 2), (ValueError, 1)])
def test_the_command_masks_secrets_in_its_error(kind, code, monkeypatch, capsys):
    def fail(**options):
        raise kind(f"http://ana:{PLANTED}@host does not answer")

    monkeypatch.setattr(cli, "app", fail)
    assert cli._run_command() == code
    shown = capsys.readouterr().err
    assert "http://ana:***@host does not answer" in shown
    assert PLANTED not in shown


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_variables_of_a_user_are_in_no_file_or_argument_of_a_sweep_and_its_ray(tmp_path, monkeypatch):
    names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "MLFLOW_TRACKING_PASSWORD"]
    for name in names:
        monkeypatch.setenv(name, PLANTED)
    make_user_folder(tmp_path)
    own = f"""
import os
from training.contract.technique import Technique
class Looking(Technique):
    strength: float = 0.0
    def apply(self, setup):
        pass
has = all(os.environ.get(name, "").startswith("pl4") for name in {names})
open(f"{{os.getpid()}}.{{has}}", "w").close()
"""
    (tmp_path / "own.py").write_text(own)
    driver = start(tmp_path, "run", "tiny.yaml", "--name", "one", "--plugin", "own.py", command=FAST)
    arguments, addresses = [], set()
    while driver.poll() is None:
        for process in psutil.Process(driver.pid).children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                arguments += process.cmdline()
                addresses |= {one.laddr.ip for one in process.net_connections("inet") if one.status == "LISTEN"}
        time.sleep(0.2)
    assert driver.returncode == 0, driver.stdout.read()
    assert addresses
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
    assert [word for word in arguments if PLANTED in word] == []
    sessions = list(Path("/tmp/ray").glob(f"session_*_{driver.pid}"))
    assert sessions
    files = [path for folder in (tmp_path, *sessions) for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if PLANTED.encode() in path.read_bytes()] == []
    assert not list(tmp_path.glob("*.False"))
    inherited = {int(path.stem) for path in tmp_path.glob("*.True")}
    assert inherited - {driver.pid}, "the workers have the variables"


@pytest.fixture
def server(tmp_path, serve_mlflow):
    """The address of an MLflow server, with a password that it does not ask for."""
    return f"http://ana:{PLANTED}@127.0.0.1:{serve_mlflow(f'sqlite:///{tmp_path}/server.db')}"


@pytest.mark.slow
def test_a_planted_password_is_in_no_ledger_run_export_report_log_or_line(
    server, tmp_path, monkeypatch, capfd, caplog, without_ray
):
    from rich.console import Console

    from ledger.folder import SweepFolder
    from ledger.record import SweepRecord
    from ledger.settings import Settings
    from search import Result
    from search.cli.run.conclusion import conclude
    from search.display.results import report_sweep
    from search.display.sweep_display import SweepDisplay
    from search.evaluation.trial_export import export_trial
    from search.runner.sweep import run_sweep
    from spaces.load import load_space

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    (tmp_path / "tiny.yaml").write_text(SPACE)
    space, folder = load_space(tmp_path / "tiny.yaml"), SweepFolder(tmp_path / "sweeps" / "tiny")
    folder.path.parent.mkdir()
    screen = io.StringIO()
    console = Console(file=screen, width=300)
    end = run_sweep(folder, space, Settings(absolute_uri(server), "planted"), SweepDisplay(console))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)  # the server, which runs in this process, has changed it
    assert SweepRecord.open(folder).settings.tracking_uri == server
    assert end.undelivered == 0
    conclude(Result(end.record, "completed", 0, console))
    export_trial(SweepRecord.open(folder), None, tmp_path / "exported")
    report_sweep(end.record, tmp_path / "report.html", console)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"ledger.jsonl", "server.db", "summary.json", "MODEL_CARD.md", "report.html"} <= {
        file.name for file in files
    }
    assert [file for file in files if PLANTED.encode() in file.read_bytes()] == []
    output = capfd.readouterr()
    assert PLANTED not in screen.getvalue() + output.out + output.err + caplog.text
    assert "***" in folder.ledger.read_text()

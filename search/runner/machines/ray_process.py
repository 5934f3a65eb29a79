"""Ray on this machine: start it or join a cluster, notice the end of its servers, and end what a killed driver left."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import psutil
from pydantic import PositiveInt

from search.arguments import VERBOSE
from search.runner.machines.cluster import probe_cluster
from search.runner.machines.fork_start import name_fork_server, start_fork_server
from search.runner.machines.ray_failures import describe_bad_place, describe_failure
from training.errors import UserError
from training.process.resources import count_cpus
from training.process.text_files import keep_json, recall_json
from training.process.user import complete_user

if TYPE_CHECKING:
    from ray.job_config import JobConfig

# Ray reads these when it is imported or started: workers keep the driver's working folder for relative paths, write no
# result files, get time to clean up after a stopped trial, and do not handle Ctrl-C; logs are printed whole and plain.
# Only `start_ray` starts Ray: else a call after the loss of a cluster would start or join another one.
RAY_SETTINGS = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_COLOR_PREFIX": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "120",
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    "TUNE_WARN_THRESHOLD_S": "60",
}

# Ray starts an idle worker for each CPU, which is not ready when the first trials need one: theirs start beside it.
NO_IDLE_WORKERS = {"RAY_num_prestart_python_workers": "0", "RAY_prestart_worker_first_driver": "0"}

LOOK_SECONDS = 1.0  # between two looks at a cluster's head node
RECORD = list[tuple[PositiveInt, float]]


def start_ray(address: str | None) -> None:
    """Start Ray on this machine, or connect to a cluster."""
    complete_user()
    with added_variables(RAY_SETTINGS | NO_IDLE_WORKERS):
        import ray

        if not ray.is_initialized():  # else by an earlier sweep of this process, or by a caller of the Python API
            with _on_loopback() if address is None else nullcontext():
                _init_ray(address)


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let all processes of a Ray that starts now listen on 127.0.0.1 alone, as they do on macOS."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextmanager
def without_secrets() -> Iterator[None]:
    """Keep keys such as `AWS_SECRET_ACCESS_KEY` out of the runtime environment that Tune makes for its workers.

    Every user of the machine can read that environment in Ray's log and in the arguments of processes. The workers here
    inherit the variables of the driver, and those of a cluster the variables of their node.
    """
    from ray.tune.execution.class_cache import ENV_VARS_TO_PROPAGATE as copied

    before = set(copied)
    copied.intersection_update(RAY_SETTINGS)
    try:
        yield
    finally:
        copied.update(before)


@contextmanager
def added_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set those variables that the user has not set, and remove them at the end: they change other runs of Tune too."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _init_ray(address: str | None) -> None:
    import ray

    verbose = VERBOSE in os.environ
    logs: dict[str, Any] = {"log_to_driver": verbose, "logging_level": logging.INFO if verbose else logging.ERROR}
    if address is None:
        # Without an address Ray would join any running cluster; a sweep does this only with --address.
        # By itself Ray takes all CPUs of the machine, also where this process may use some of them.
        where: dict[str, Any] = {"address": "local", "include_dashboard": False, "num_cpus": count_cpus()}
        environment: dict[str, Any] = {}
        python = start_fork_server()  # it imports while Ray starts
    else:
        where = {"address": address}
        from training.data.files.pixel_store import LIMIT_VARIABLES

        own = {name: os.environ[name] for name in (VERBOSE, *LIMIT_VARIABLES.values()) if name in os.environ}
        environment = {"env_vars": RAY_SETTINGS | own}
        python = name_fork_server() if _join(address) == [socket.gethostname()] else ""
    if python:
        environment["py_executable"] = python
    # On a busy machine a start may exceed Ray's limit of 30 seconds, which is no setting.
    for is_last in [True] if address else [False, False, True]:
        try:
            _keep_token_private()
            settings: dict[str, Any] = {**where, "runtime_env": environment, "configure_logging": True, **logs}
            _init_beside(lambda: ray.init(**settings, job_config=_make_job()))  # noqa: B023 - it is called at once
            _keep_token_private()  # it may be new
            return
        except Exception as error:  # Ray raises the bare type
            if address is None and (sentence := describe_bad_place(error)):
                raise UserError(sentence) from error
            if not is_last:
                continue
            reason = describe_failure(error).split(". ")[0]
            way_out = "Check the address with `ray status`" if address else "Try again when the machine is less busy"
            raise UserError(f"--address={address or 'local'}: Ray did not start ({reason}). {way_out}.") from error


def _make_job() -> JobConfig:
    """Return a job whose workers import nothing from the driver's working folder, where files of a stranger may lie."""
    from ray.job_config import JobConfig

    class Job(JobConfig):
        def _serialize(self) -> bytes:  # type: ignore[override]  # Ray's annotation says `str`
            self._py_driver_sys_path = []  # `ray.init` has just added the folder, for which it has no setting
            return cast(bytes, super()._serialize())

    return Job()


def _init_beside(init: Callable[[], object]) -> None:
    """Call `ray.init` in a thread of its own.

    In the main thread Ray takes SIGTERM for itself, and loses one that arrives while it starts its processes: it raises
    `SystemExit`, which Python ignores in a callback of `fork`.
    """
    done: Future[object] = Future()

    def run() -> None:
        try:
            done.set_result(init())
        except Exception as error:  # noqa: BLE001 - raised again below
            done.set_exception(error)
        else:
            threading.Event().wait()  # Linux ends Ray's processes when the thread that started them ends

    threading.Thread(target=run, name="ray", daemon=True).start()
    done.result()


def _join(address: str) -> list[str]:
    """Return the hosts of a cluster, and use Ray's token if it needs one; an empty list if that is not known.

    `ray start` uses a token that it finds, but a driver does not. A driver must not use it without need: nodes without a
    token cannot answer a driver that has one. Without this check `ray.init` would repeat a refusal for 20 seconds and then
    blame the address.
    """
    from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
    from ray._private.services import canonicalize_bootstrap_address_or_die

    if "://" in address:
        return []
    try:
        head = canonicalize_bootstrap_address_or_die(address)
    except ConnectionError:  # `ray.init` reports it
        return []
    # Ray replaces 127.0.0.1 by the address of this machine, and would then wait for minutes.
    probe_cluster(
        head,
        f"Ray looks there for the cluster of --address={address}. If its head node listens on 127.0.0.1 alone, set "
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 for this command too.",
    )
    if (hosts := _list_hosts(head)) is not None:
        return hosts
    has_token = maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    if has_token and (hosts := _list_hosts(head)) is not None:
        return hosts
    raise UserError(
        f"--address={address}: authentication failed, because the cluster needs a token and "
        f"{'this machine has another one' if has_token else 'this machine has none'}. Copy the head node's "
        "~/.ray/auth_token to the same path here, or set RAY_AUTH_TOKEN and RAY_AUTH_MODE=token."
    )


def _list_hosts(head: str) -> list[str] | None:
    """Return the hosts of a cluster without joining it; None if it refuses the token of this process."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled code
    from ray.core.generated.gcs_pb2 import GcsNodeInfo  # type: ignore[attr-defined]  # generated code
    from ray.exceptions import AuthenticationError

    try:
        nodes = GcsClient(address=head).get_all_node_info()
    except AuthenticationError:
        return None
    except Exception as error:  # noqa: BLE001 - `ray.init` reports it
        logging.getLogger("search").debug("%s: %s", head, error)
        return []
    return [node.node_manager_hostname for node in nodes.values() if node.state == GcsNodeInfo.ALIVE]


def _keep_token_private() -> None:
    """Let only this user read Ray's token, with which anybody can run code in the sweep. Ray leaves that to the umask."""
    folder = Path.home() / ".ray"
    with suppress(OSError, RuntimeError):
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "auth_token").chmod(0o600)


def watch_servers(address: str | None) -> Callable[[], float]:
    """Return a function that tells for how many seconds Ray's servers have not answered; those that ended never will.

    Tune goes on without them, and waits for trials that will never report.
    """
    servers = [child for child in psutil.Process().children() if child.name() in ("gcs_server", "raylet")]
    if not servers and "://" not in (address or ""):
        return _watch_head()

    def silence() -> float:
        with suppress(psutil.NoSuchProcess):
            ended = any(not server.is_running() or server.status() == psutil.STATUS_ZOMBIE for server in servers)
            return math.inf if ended else 0.0
        return math.inf

    return silence


def _watch_head() -> Callable[[], float]:
    import ray

    head = ray.get_runtime_context().gcs_address
    looked = answered = time.monotonic()

    def silence() -> float:
        nonlocal looked, answered
        if time.monotonic() - looked > LOOK_SECONDS:
            looked = time.monotonic()
            with suppress(UserError):
                probe_cluster(head)
                answered = looked
        return looked - answered

    return silence


def write_own(path: Path) -> None:
    """Record the processes that this one has started, also indirectly: their numbers and start times."""
    processes = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            processes.append((process.pid, process.create_time()))
    keep_json(path, processes)


def end_left(path: Path) -> None:
    """End the recorded processes of Ray that still live: its agents wait for a minute before they end by themselves."""
    for pid, began in recall_json(path, RECORD) or ():
        with suppress(psutil.Error, OverflowError):  # it has ended, or its number belongs to another user now
            process = psutil.Process(pid)
            if process.create_time() == began and process.name().startswith("ray"):
                process.kill()

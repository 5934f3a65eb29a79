"""The machines of a cluster, their abilities, and the number of trials that fit on them at the same time."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from search.runner.machines.drain import list_draining
from search.runner.machines.forking.start import start_fork_server
from search.runner.machines.warm import Warm
from spaces.parameters.domains import Scalar, format_value
from spaces.space import Space
from training.errors import UserError
from training.process.memory import MB
from training.process.optional import NEEDED_BY, install_line, is_installed

CONNECT_SECONDS = 5.0
ACCELERATOR = "accelerator_type:"  # begins the name of the resource with which Ray gives the type of a node's GPUs

# Ray reads these when it is imported or started: workers keep the driver's working folder for relative paths, write no
# result files, get time to clean up after a stopped trial, and do not handle Ctrl-C.
RAY_SETTINGS = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
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

# Values that techniques refuse on a CPU, and values that they refuse on GPUs without bfloat16 and TF32.
NEEDS_GPU: dict[str, set[Scalar]] = {
    "precision.mode": {"16-mixed"},
    "precision.float32": {"high", "medium"},
    "cudnn_benchmark.enabled": {True},
    "batch_size": {"auto"},
}
NEEDS_NEW_GPU: dict[str, set[Scalar]] = {"precision.mode": {"bf16-mixed"}, "precision.float32": {"high", "medium"}}
DEVICES = "data_parallel.devices"


@dataclass(frozen=True)
class Node:
    """One machine of the cluster, as Ray counts it."""

    id: str
    host: str
    cpus: float
    gpus: float
    accelerator: str = ""  # type of the GPUs, such as `A100`, where Ray detects it
    memory_mb: float = math.inf  # memory that trials may use, in 2**20 bytes


def start_ray(address: str | None, warm: Warm | None = None) -> None:
    """Start Ray on this machine, or connect to a cluster, or to a Ray of this machine that is up.

    Raises:
        UserError: the cluster does not answer.
    """
    for name, value in (warm.settings if warm else {}).items():
        os.environ.setdefault(name, value)
    with added_variables(RAY_SETTINGS | NO_IDLE_WORKERS):
        import ray

        if not ray.is_initialized():  # else by an earlier sweep of this process, or by a caller of the Python API
            _init_ray(address, warm)


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


def _init_ray(address: str | None, warm: Warm | None) -> None:
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    # Without an address Ray would join any running cluster; a sweep does this only with --address.
    where: dict[str, Any] = {"address": "local", "include_dashboard": False}
    python = ""
    if warm:
        _use_token(warm.address)
        where, python = {"address": warm.address}, warm.python
    elif address is None:
        python = start_fork_server()  # it imports while Ray starts
    if python:
        where["runtime_env"] = {"py_executable": python}
    if address:
        _use_token(address)
        where = {"address": address, "runtime_env": {"env_vars": RAY_SETTINGS | _own_settings()}}
    # On a busy machine a start may exceed Ray's limit of 30 seconds, which is no setting.
    for is_last in [True] if address or warm else [False, False, True]:
        try:
            _keep_token_private()
            _init_beside(lambda: ray.init(**where, **quiet))
            _keep_token_private()  # it may be new
            return
        except Exception as error:  # Ray raises the bare type
            if not is_last:
                continue
            reason = str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")
            if warm:
                raise UserError(f"The Ray of sweep up does not answer ({reason}). End it: sweep down.") from error
            way_out = "Check the address with `ray status`" if address else "Try again when the machine is less busy"
            raise UserError(f"--address={address or 'local'}: Ray did not start ({reason}). {way_out}.") from error


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


def find_dashboard() -> str:
    """Return the address of Ray's own dashboard; empty without one."""
    import ray
    from ray._private.worker import get_dashboard_url  # a second `ray.init` has it too, but prints a line

    address = get_dashboard_url() if ray.is_initialized() else None
    return f"http://{address}" if address else ""


def _own_settings() -> dict[str, str]:
    """Return the variables of this process that workers on other machines need too."""
    from training.data.files.pixel_store import LIMIT_VARIABLES

    return {name: os.environ[name] for name in LIMIT_VARIABLES.values() if name in os.environ}


def _use_token(address: str) -> None:
    """Use Ray's token if the cluster needs one: `ray start` uses a token that it finds, but a driver does not.

    A driver must not use it without need: nodes without a token cannot answer a driver that has one. Without this check
    `ray.init` would repeat a refusal for 20 seconds and then blame the address.

    Raises:
        UserError: the cluster needs another token.
    """
    from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available

    if "://" in address or address == "auto" or not _is_refused(address):
        return
    has_token = maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    if has_token and not _is_refused(address):
        return
    raise UserError(
        f"--address={address}: authentication failed, because the cluster needs a token and "
        f"{'this machine has another one' if has_token else 'this machine has none'}. Copy the head node's "
        "~/.ray/auth_token to the same path here, or set RAY_AUTH_TOKEN and RAY_AUTH_MODE=token."
    )


def _is_refused(address: str) -> bool:
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled code
    from ray.exceptions import AuthenticationError

    try:
        GcsClient(address=address)
    except AuthenticationError:
        return True
    except Exception as error:  # noqa: BLE001 - `ray.init` reports it
        logging.getLogger("search").debug("%s: %s", address, error)
    return False


def _keep_token_private() -> None:
    """Let only this user read Ray's token, with which anybody can run code in the sweep. Ray leaves that to the umask."""
    folder = Path.home() / ".ray"
    with suppress(OSError, RuntimeError):
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "auth_token").chmod(0o600)


def probe_cluster(
    address: str | None, way_out: str = "Give host:port of its head node, or leave it out to run on this machine."
) -> None:
    """Check within seconds that the head node answers; Ray itself would wait for minutes.

    Raises:
        UserError: the head node does not answer.
    """
    if address in (None, "auto", "local"):
        return
    parts = urlparse(address if "://" in address else f"ray://{address}")
    try:
        socket.create_connection((parts.hostname or "", parts.port or 6379), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError):
        raise UserError(f"--address={address}: no Ray cluster answers there. {way_out}") from None


def list_nodes() -> list[Node]:
    """Return the machines that are alive."""
    import ray

    draining = list_draining()
    return [_read_node(node) for node in ray.nodes() if node["Alive"] and node["NodeID"] not in draining]


def _read_node(node: dict[str, Any]) -> Node:
    has = node["Resources"]
    types = [name.removeprefix(ACCELERATOR) for name in has if name.startswith(ACCELERATOR)]
    memory = has.get("memory", math.inf) / MB
    return Node(
        node["NodeID"], node["NodeManagerHostname"], has.get("CPU", 0), has.get("GPU", 0), "".join(types[:1]), memory
    )


def this_machine() -> Node:
    """Return this machine without asking Ray, which takes long to start; the counts are at least those of Ray."""
    devices = Path("/dev")
    # Drivers of other vendors than NVIDIA, and the one of Windows, have no file for each GPU.
    is_countable = not any((devices / name).exists() for name in ("kfd", "dxg"))
    gpus = len(list(devices.glob("nvidia[0-9]*"))) if is_countable else 1024
    return Node("", socket.gethostname(), os.cpu_count() or 1, gpus)


def fit_to_cluster(
    space: Space, can_bf16: bool, has_gpus: bool, devices: int = 1, some_can: bool = False
) -> tuple[Space, list[str]]:
    """Remove the options that a machine does not support, or that need more devices than a trial gets.

    Args:
        space: The space.
        can_bf16: Whether all GPUs have bfloat16 and TF32 arithmetic.
        has_gpus: Whether trials run on GPUs.
        devices: The number of devices of a trial.
        some_can: Whether some GPUs have bfloat16, which the sentence then mentions.

    Returns:
        The space, and a sentence for each removal.

    Raises:
        UserError: nothing would be left.
    """
    space, notes = _fit_devices(space, devices, "gpu" if has_gpus else "cpu")
    for (path, value), library in NEEDED_BY.items():
        if value in space.values_of(path) and not is_installed(library):
            space, note = _take_out(
                space, path, [value], f"{library} is not installed; {install_line(library)} adds it"
            )
            notes.append(note)
    if has_gpus and can_bf16:
        return space, notes
    reason = "the GPUs here have neither bfloat16 nor TF32 arithmetic" if has_gpus else "no GPU here"
    if some_can:
        reason = "some GPUs here have neither bfloat16 nor TF32 arithmetic; --accelerator TYPE leaves them out"
    for path, impossible in (NEEDS_NEW_GPU if has_gpus else NEEDS_GPU).items():
        if out := sorted(space.values_of(path) & impossible):
            space, note = _take_out(space, path, out, reason)
            notes.append(note)
    return space, notes


def _fit_devices(space: Space, has: int, kind: str) -> tuple[Space, list[str]]:
    if not (out := sorted(devices for devices in space.values_of(DEVICES) if devices > has)):
        return space, []
    reason = f"a trial gets {has} {kind.upper()}; --{kind}s-per-trial={out[-1]} would allow it"
    space, note = _take_out(space, DEVICES, out, reason)
    return space, [note]


def _take_out(space: Space, path: str, values: list[Scalar], reason: str) -> tuple[Space, str]:
    what = f"{path}={', '.join(map(format_value, values))}"
    if len(values) == len(space.values_of(path)):
        raise UserError(f"{what}: {reason}. The space has no other value for it: give one with {path}=VALUE.")
    return space.without(path, values), f"Removed from the space: {what} ({reason})."

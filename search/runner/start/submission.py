"""Send a sweep to a Ray cluster as a job, with the program and the space."""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from search.runner.machines.cluster import probe_cluster
from search.runner.machines.ray_failures import describe_failure
from search.runner.worker import ROOMS, project_root
from spaces.space import Space
from training.errors import UserError
from training.plugins import list_sources
from training.process.optional import require

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

# Loggers of Ray that report each step of the transfer; they have levels of their own.
NOISY = ("ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk", "ray._private")
AGENT_SECONDS = 90.0  # the longest wait for a head node that has just started
SPACE_FILE = "space.yaml"
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


@dataclass(frozen=True)
class Job:
    """A sweep to run on a cluster; `options` are those of `sweep run`."""

    name: str
    space: Space
    options: Sequence[str]

    @property
    def command(self) -> str:
        """The command that a scheduler may start any number of times."""
        words = ["python", "-m", "search", "run", SPACE_FILE, "--name", self.name, "--address", "auto"]
        plugin_words = [word for path in _list_plugin_files() for word in ("--plugin", path)]
        return shlex.join([*words, "--or-resume", "--publish", *plugin_words, *self.options])


def submit_job(address: str, job: Job) -> str:
    """Send a job to the head node, and return its id."""
    client = _connect(address)
    with tempfile.TemporaryDirectory() as folder:
        _pack(Path(folder), job.space)
        deadline = time.monotonic() + AGENT_SECONDS
        while True:
            try:
                return str(
                    client.submit_job(
                        entrypoint=job.command,
                        submission_id=f"{job.name}-{uuid.uuid4().hex[:8]}",
                        runtime_env={"working_dir": folder},
                        metadata={"sweep": job.name},
                    )
                )
            except (RuntimeError, ConnectionError, ValueError) as error:
                if "try again later" in str(error) and time.monotonic() < deadline:
                    time.sleep(1.0)
                    continue
                raise UserError(
                    f"--address={address}: the cluster refused the job ({describe_failure(error)})."
                ) from error


def follow_job(address: str, job_id: str) -> bool:
    """Print a job's output until it ends. Returns whether it succeeded."""
    client = _connect(address)

    async def show() -> None:
        async for text in client.tail_job_logs(job_id):
            print(text, end="", flush=True)

    asyncio.run(show())
    return client.get_job_status(job_id).name == "SUCCEEDED"


def _connect(address: str) -> JobSubmissionClient:
    if not address.startswith(("http://", "https://")):
        raise UserError(f"--address={address}: jobs go to the head node's dashboard. Write it as http://HEAD:8265.")
    require("sweep submit", "aiohttp")
    probe_cluster(address, "Give the address of its dashboard, http://HEAD:8265.")
    from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
    from ray.job_submission import JobSubmissionClient

    for name in NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)

    maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    try:
        return JobSubmissionClient(address)
    except (RuntimeError, ConnectionError) as error:
        raise UserError(
            f"--address={address}: the head node does not take jobs ({describe_failure(error)}). It needs ray[default] and "
            "its dashboard."
        ) from error


def _pack(folder: Path, space: Space) -> None:
    """Copy the program and the space, so that the cluster needs only the libraries."""
    for room in ROOMS:
        shutil.copytree(Path(project_root()) / room, folder / room, ignore=LEFT_OUT)
    (folder / SPACE_FILE).write_text(space.to_yaml())
    for path, text in _list_plugin_files().items():
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(text.encode())


def _list_plugin_files() -> dict[str, str]:
    """Return the text of each file that was given with --plugin, by its path in the job's folder."""
    return {f"own/{number}/{Path(source['file']).name}": source["text"] for number, source in enumerate(list_sources())}

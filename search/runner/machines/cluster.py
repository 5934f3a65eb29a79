"""The machines of a cluster, and the options of a space that they support."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ledger.trust import OWN
from search.runner.machines.drain import list_draining
from spaces.parameters.domains import Scalar, format_value
from spaces.space import Space
from training.errors import UserError
from training.process.optional import NEEDED_BY, install_line, is_installed
from training.process.resources import count_cpus

CONNECT_SECONDS = 5.0
ACCELERATOR = "accelerator_type:"  # begins the name of the resource with which Ray gives the type of a node's GPUs
NODE_ID = "ray.io/node-id"  # Ray's label of each node
COUNTED = frozenset({"CPU", "GPU", "memory", "object_store_memory"})  # resources of every node

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
    offers: frozenset[str] = frozenset()  # `accelerator_type:A100`, other resources, and labels such as `zone=a`


def share_of(node: Node, cpus: float, gpus: float) -> float:
    """Return the CPUs that a trial may use on a node: the share that belongs to its GPUs, at least what it requested."""
    return max(cpus, float(int(node.cpus * gpus / node.gpus))) if gpus and node.gpus else cpus


def probe_cluster(
    address: str | None, way_out: str = "Give host:port of its head node, or leave it out to run on this machine."
) -> None:
    """Check within seconds that the head node answers; Ray itself would wait for minutes."""
    if address in (None, *OWN):
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
    others = {name for name in has if name not in COUNTED and not name.startswith("node:")}
    labels = {f"{key}={value}" for key, value in node["Labels"].items() if key != NODE_ID}
    return Node(
        node["NodeID"], node["NodeManagerHostname"], has.get("CPU", 0), has.get("GPU", 0), frozenset(others | labels)
    )


def this_machine() -> Node:
    """Return this machine without asking Ray, which takes long to start; its GPUs are at least those of Ray."""
    devices = Path("/dev")
    # Drivers of other vendors than NVIDIA, and the one of Windows, have no file for each GPU.
    is_countable = not any((devices / name).exists() for name in ("kfd", "dxg"))
    gpus = len(list(devices.glob("nvidia[0-9]*"))) if is_countable else 1024
    return Node("", socket.gethostname(), count_cpus(), gpus)


def fit_to_cluster(
    space: Space, has_gpus: bool, devices: int = 1, can_bf16: bool = True, some_can: bool = False
) -> tuple[Space, list[str]]:
    """Remove the options that a machine does not support, or that need more `devices` than a trial gets.

    `can_bf16` is whether all GPUs, or all CPUs without them, have bfloat16 arithmetic, `some_can` whether some have. Returns
    the space, and a sentence for each removal.
    """
    device, needed = ("gpu", NEEDS_NEW_GPU) if has_gpus else ("cpu", NEEDS_GPU)
    which, way_out = ("some", "; --accelerator TYPE leaves them out") if some_can else ("the", "")
    lacks = f"{which} GPUs here have neither bfloat16 nor TF32 arithmetic{way_out}"
    reason = lacks if has_gpus else "no GPU here"
    more = {count for count in space.values_of(DEVICES) if count > devices}
    allowed_by = f"--{device}s-per-trial={max(more, default=0)}"
    limits = [(DEVICES, more, f"a trial gets {devices} {device.upper()}; {allowed_by} would allow it")]
    for (path, value), library in NEEDED_BY.items():
        if not is_installed(library):
            limits.append((path, {value}, f"{library} is not installed; {install_line(library)} adds it"))
    if not (has_gpus and can_bf16):
        limits += [(path, impossible, reason) for path, impossible in needed.items()]
    if not can_bf16 and not has_gpus and len(space.values_of("precision.mode")) > 1:  # it is slow, but not refused
        limits.append(("precision.mode", {"bf16-mixed"}, "a CPU here has no bfloat16 arithmetic: it is slower there"))
    notes = []
    for path, impossible, why in limits:
        if out := sorted(space.values_of(path) & impossible):
            what = f"{path}={', '.join(map(format_value, out))}"
            if len(out) == len(space.values_of(path)):
                raise UserError(f"{what}: {why}. The space has no other value for it: give one with {path}=VALUE.")
            space = space.without(path, out)
            notes.append(f"Removed from the space: {what} ({why}).")
    return space, notes

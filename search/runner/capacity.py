"""The demand of a trial, and how many trials fit on the machines that are there now."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from search.runner.cluster import ACCELERATOR, Node
from training.errors import UserError

LOOK_SECONDS = 1.0  # between two looks at the list of nodes


@dataclass(frozen=True)
class Demand:
    """The CPUs and GPUs of one trial, and the type of GPU that it needs, if any."""

    cpus: float
    gpus: float
    accelerator: str | None = None

    @property
    def devices(self) -> int:
        """The largest number of devices of one trial; with a part of a GPU it is one."""
        return max(1, int(self.gpus or self.cpus))

    @property
    def resources(self) -> dict[str, float]:
        """The resources of one trial, as Ray counts them."""
        kind = {f"{ACCELERATOR}{self.accelerator}": 0.001} if self.accelerator else {}
        return {"cpu": self.cpus, "gpu": self.gpus, **kind}

    def slots_on(self, node: Node) -> int:
        """The number of trials that fit on a node at the same time."""
        if self.accelerator and node.accelerator != self.accelerator:
            return 0
        return int(min(node.cpus // self.cpus, node.gpus // self.gpus if self.gpus else node.cpus))

    def count_slots(self, nodes: Iterable[Node]) -> int:
        return sum(map(self.slots_on, nodes))


def plan_demand(
    nodes: list[Node],
    cpus: float | None,
    gpus: float | None,
    accelerator: str | None = None,
    can_grow: bool = False,
) -> Demand:
    """Return the demand of each trial: by default one GPU and its share of the CPUs, or one CPU if there are no GPUs.

    The share is the smallest of all nodes, so that no GPU stays idle; a trial on a larger node uses its share of that node.

    Args:
        nodes: The machines that are there.
        cpus: The CPUs of a trial, if the user names them.
        gpus: The GPUs of a trial, if the user names them.
        accelerator: The type of GPU that trials need.
        can_grow: Whether machines may join later, so that the demand may exceed what is there.

    Raises:
        UserError: no machine has enough.
    """
    if accelerator and not can_grow and accelerator not in {node.accelerator for node in nodes}:
        types = ", ".join(sorted({node.accelerator for node in nodes if node.accelerator})) or "none that Ray names"
        raise UserError(f"--accelerator={accelerator}: the machines have {types}. Name one of these, or leave it out.")
    nodes = [node for node in nodes if accelerator in (None, node.accelerator)]
    if gpus is None:
        gpus = 1.0 if accelerator or any(node.gpus for node in nodes) else 0.0
    if cpus is None:
        shares = [node.cpus // node.gpus for node in nodes if node.gpus]
        cpus = max(1.0, float(int(min(shares) * gpus))) if gpus and shares else 1.0
    demand = Demand(cpus, gpus, accelerator)
    if not can_grow:
        _refuse_too_much(demand, nodes)
    return demand


def _refuse_too_much(demand: Demand, nodes: list[Node]) -> None:
    is_here = [node.host for node in nodes] == [socket.gethostname()]
    largest = "this machine has" if is_here else "a trial runs on one machine, and the largest of the cluster has"
    most_gpus, most_cpus = max(node.gpus for node in nodes), max(node.cpus for node in nodes)
    for option, requested, most in (
        ("--gpus-per-trial", demand.gpus, most_gpus),
        ("--cpus-per-trial", demand.cpus, most_cpus),
    ):
        if requested > most:
            raise UserError(f"{option}={requested:g}: {largest} {most:g}. Give a smaller number.")
    if not demand.count_slots(nodes):
        raise UserError(
            f"--cpus-per-trial={demand.cpus:g} and --gpus-per-trial={demand.gpus:g}: no machine has both. Give smaller "
            "numbers."
        )


def share_of(node: Node, cpus: float, gpus: float) -> float:
    """Return the CPUs that a trial may use on a node: the share that belongs to its GPUs, at least what it requested."""
    return max(cpus, float(int(node.cpus * gpus / node.gpus))) if gpus and node.gpus else cpus


class Capacity:
    """The number of trials that may run now. It follows nodes as they join, once they are prepared, and as they leave."""

    def __init__(
        self,
        demand: Demand,
        nodes: list[Node],
        *,
        most: int | None = None,
        look: Callable[[], list[Node]] | None = None,
        prepare: Callable[[Node], Callable[[], str | None]] | None = None,
        say: Callable[[str], Any] = lambda line: None,
    ) -> None:
        """Begin with prepared nodes.

        Args:
            demand: The demand of one trial.
            nodes: The nodes that are prepared.
            most: The number of trials that the user wants at the same time, also if not all have room yet: Ray then shows
                the others as demand to an autoscaler.
            look: Lists the nodes that are alive; None for a single machine.
            prepare: Begins to prepare a node, and returns a function for its result: None while it is not ready, "" when
                trials can run there, else the problem.
            say: Prints a line.
        """
        self.demand = demand
        self.most = most
        self._look, self._prepare, self._say = look, prepare, say
        self._ready = {node.id for node in nodes}
        self._waiting: dict[str, Callable[[], str | None]] = {}
        self._next_look = 0.0
        self._room = demand.count_slots(nodes)

    @property
    def slots(self) -> int:
        """The number of trials that may run at the same time, as of the last look."""
        if self.most is None:
            return self._room
        return self.most if self._look is not None else min(self.most, self._room)

    def look(self) -> int:
        """Look at the nodes, at most once a second, and return `slots`. Only the thread that starts trials calls this."""
        if self._look is not None and time.monotonic() >= self._next_look:
            self._update(self._look())
            self._next_look = time.monotonic() + LOOK_SECONDS
        return self.slots

    def _update(self, nodes: list[Node]) -> None:
        able = {node.id: node for node in nodes if self.demand.slots_on(node)}
        for number, node in able.items():
            if number not in self._ready and number not in self._waiting and self._prepare is not None:
                self._waiting[number] = self._prepare(node)
                self._say(f"{node.host} joined and is being prepared.")
        for number, result in list(self._waiting.items()):
            problem = result() if number in able else ""
            if problem is None:
                continue
            if problem:
                self._waiting[number] = lambda: None  # it stays, so that it is not prepared again
                self._say(f"{able[number].host} is not counted as room for trials: {problem}")
            else:
                del self._waiting[number]
                self._ready |= {number} & able.keys()
        self._ready &= able.keys()
        self._room = self.demand.count_slots(able[number] for number in self._ready)

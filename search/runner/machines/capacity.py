"""The demand of a trial, and how many trials fit on the machines that are there now."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from search.runner.machines.cluster import ACCELERATOR, NODE_ID, Node
from search.runner.machines.sharing import SharedCluster
from training.errors import UserError

LOOK_SECONDS = 1.0  # between two looks at the list of nodes


@dataclass(frozen=True)
class Demand:
    """The CPUs and GPUs of one trial, and what else its node must offer, if anything, as in `Node.offers`."""

    cpus: float
    gpus: float
    needs: str | None = None

    @property
    def devices(self) -> int:
        """The largest number of devices of one trial; with a part of a GPU it is one."""
        return max(1, int(self.gpus or self.cpus))

    @property
    def resources(self) -> dict[str, float]:
        """The resources of one trial, as Ray counts them."""
        needs = {self.needs: 0.001} if self.needs and "=" not in self.needs else {}
        gpus = {"GPU": self.gpus} if self.gpus else {}
        return {"CPU": self.cpus, **gpus, **needs}

    @property
    def labels(self) -> dict[str, str]:
        """The label that its node must have, if any."""
        key, is_label, value = (self.needs or "").partition("=")
        return {key: value} if is_label else {}

    def slots_on(self, node: Node) -> int:
        """The number of trials that fit on a node at the same time."""
        if self.needs and self.needs not in node.offers:
            return 0
        # 1e-9: three times a third of a GPU is a GPU.
        by_gpus = (node.gpus + 1e-9) // self.gpus if self.gpus else node.cpus
        return int(min(node.cpus // self.cpus, by_gpus))

    def count_slots(self, nodes: Iterable[Node]) -> int:
        return sum(map(self.slots_on, nodes))


def plan_demand(
    nodes: list[Node], cpus: float | None, gpus: float | None, accelerator: str | None = None, can_grow: bool = False
) -> Demand:
    """Return the demand of each trial: by default one GPU and its share of the CPUs, or one CPU if there are no GPUs.

    The share is the smallest of all nodes, so that no GPU stays idle; a trial on a larger node uses its share of that node.
    `cpus`, `gpus` and `accelerator` are those that the user names. With `can_grow` machines may join later, so that the
    demand may exceed what is there.
    """
    needs, offered = accelerator or None, frozenset[str]().union(*(node.offers for node in nodes))
    if accelerator and accelerator not in offered and "=" not in accelerator:
        needs = f"{ACCELERATOR}{accelerator}"
    if needs and not can_grow and needs not in offered:
        names = ", ".join(sorted(name.removeprefix(ACCELERATOR) for name in offered)) or "none that Ray names"
        raise UserError(f"--accelerator={accelerator}: the machines have {names}. Name one of these, or leave it out.")
    nodes = [node for node in nodes if needs is None or needs in node.offers]
    if gpus is None:
        gpus = 1.0 if any(node.gpus for node in nodes) or (needs and not nodes) else 0.0
    if cpus is None:
        shares = [node.cpus // node.gpus for node in nodes if node.gpus]
        cpus = max(1.0, float(int(min(shares) * gpus))) if gpus and shares else 1.0
    demand = Demand(cpus, gpus, needs)
    if not can_grow:
        if not nodes:
            raise UserError(
                "--address: every node of the cluster is draining. Start again when there is another one, or give "
                "--max-concurrent, which waits for it."
            )
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


class Capacity:
    """The number of trials that may run now. It follows nodes as they join, once they are prepared, and as they leave."""

    def __init__(
        self,
        demand: Demand,
        nodes: list[Node],
        *,
        failed: Mapping[str, str] | None = None,
        most: int | None = None,
        look: Callable[[], list[Node]] | None = None,
        prepare: Callable[[Node], Callable[[], str | None]] | None = None,
        shared: SharedCluster | None = None,
        say: Callable[[str], object] = lambda line: None,
    ) -> None:
        """Begin with prepared nodes; `failed` has the reason for each node whose preparation has failed, by its id.

        `most` is the number of trials that the user wants at the same time, also if not all have room yet: Ray then shows
        the others as demand to an autoscaler. `look` lists the nodes that are alive; a single machine needs none. `prepare`
        begins to prepare a node, and returns a function for its result: None while it is not ready, "" when trials can run
        there, else the problem. `shared` says how many trials the other sweeps of the cluster leave to this one.
        """
        self.demand = demand
        self.most = most
        self._look, self._prepare, self._shared, self._say = look, prepare, shared, say
        self._ready = {node.id for node in nodes}
        self._waiting: dict[str, Callable[[], str | None]] = {}
        self._failed = dict(failed or {})  # a node stays, so that it is not prepared again
        self.avoided: list[str] = sorted(self._failed)  # the nodes that are there but get no trial, as of the last look
        self.problem = ""  # the reason why no trial can run, although there are nodes
        self._next_look = 0.0
        self._nodes = list(nodes)
        self._room = demand.count_slots(nodes)

    @property
    def slots(self) -> int:
        """The number of trials that may run at the same time, as of the last look."""
        return self._alone if self.limit is None else min(self.limit, self._alone)

    @property
    def limit(self) -> int | None:
        """The number of trials that other sweeps of the cluster leave to this one; None if there are none."""
        return self._shared.limit if self._shared else None

    @property
    def _alone(self) -> int:
        if self.most is None:
            return self._room
        return self.most if self._look is not None else min(self.most, self._room)

    @property
    def selector(self) -> dict[str, str]:
        """What the labels of a trial's node must be, in Ray's words; its id is one of them."""
        # Without spaces, which Ray takes for a part of the next id.
        avoided = {NODE_ID: f"!in({','.join(self.avoided)})"} if self.avoided else {}
        return self.demand.labels | avoided

    @property
    def shares_cpus(self) -> bool:
        """Whether fewer trainings at a time may have more CPUs each: on this machine, without GPUs."""
        return self._look is None and not self.demand.gpus

    def widen(self, lanes: int) -> Demand:
        """Return the demand of each of so many trainings at a time, with all CPUs that they may share."""
        cpus = min(node.cpus for node in self._nodes) // lanes if self.shares_cpus else 0.0
        return replace(self.demand, cpus=max(self.demand.cpus, cpus))

    def is_prepared(self, node: str) -> bool:
        """Return whether the node with this id is there and prepared, as of the last look."""
        return node in self._ready

    def look(self, running: int = 0, unstarted: int = 0) -> int:
        """Look at the nodes, at most once a second; return how many trials may run. For the thread that starts them alone.

        The two numbers are those of the trials that run, and of those that could begin if there was room.
        """
        if self._look is not None and time.monotonic() >= self._next_look:
            self._update(self._look())
            if self._shared:
                wanted = min(running + unstarted, self._alone)
                bundles = [self.demand.resources] * wanted if self.most is not None else []
                self._shared.ask(running, wanted if self._room else 0, self._room, bundles)
            self._next_look = time.monotonic() + LOOK_SECONDS
        return self.slots if self._shared is None or self._shared.is_known else 0

    def close(self) -> None:
        """Leave the cluster to the other sweeps."""
        if self._shared:
            self._shared.leave()

    def _update(self, nodes: list[Node]) -> None:
        able = {node.id: node for node in nodes if self.demand.slots_on(node)}
        for number, node in able.items():
            is_known = number in self._ready or number in self._waiting or number in self._failed
            if not is_known and self._prepare is not None:
                self._waiting[number] = self._prepare(node)
                self._say(f"{node.host} joined and is being prepared.")
        for number, result in list(self._waiting.items()):
            problem = result() if number in able else ""
            if problem is None:
                continue
            del self._waiting[number]
            if problem:
                self._failed[number] = problem
                self._say(describe_left_out(able[number].host, problem))
            else:
                self._ready |= {number} & able.keys()
        self._ready &= able.keys()
        self.avoided = sorted(able.keys() - self._ready)
        self._nodes = [able[number] for number in self._ready]
        self._room = self.demand.count_slots(self._nodes)
        left = able.keys() & self._failed.keys()
        is_over = left and not self._ready and not self._waiting
        self.problem = f"no node is left for trials ({self._failed[min(left)].rstrip('.')})" if is_over else ""


def describe_left_out(host: str, problem: str) -> str:
    """Return the sentence about a node whose preparation failed."""
    return f"{host} gets no trials: {problem}"

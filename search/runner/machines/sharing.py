"""Share a cluster with the sweeps of other drivers: an actor of Ray says how many trials each of them may run.

Ray gives room to whoever asked first, so without this a second sweep waits for the end of the first one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from search.runner.worker import bootstrap

NAME = "technique-search-shares"
SILENT_SECONDS = 15.0  # after which a sweep has ended, or the actor does not answer
TURN_SECONDS = 30.0  # for which a sweep keeps room that the sweeps have in turns
Bundle = dict[str, float]  # resources by Ray's name, such as CPU
ROUNDING = 1e-9  # a sum of parts may miss a whole number by less


@dataclass
class Claim:
    """What one sweep holds and wants of the cluster, in trials."""

    running: int = 0
    wanted: int = 0  # the running ones and those that it could start
    room: int = 1  # as many of its trials would fit on the whole cluster
    bundles: Sequence[Bundle] = ()  # resources for which the cluster should grow
    seen: float = 0.0

    @property
    def held(self) -> float:
        return self.running / self.room


class Shares:
    """Divides a cluster among sweeps: equal parts of it, but to none more than it wants (max-min fairness).

    A part is counted as a share of the cluster, since trials of different sweeps demand different resources. Room for
    one trial that no sweep has a right to alone, such as the third of three for two sweeps, goes round in turns. A sweep
    that has too much gives it back, and only then another one gets it, so that no trial starts without room.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.claims: dict[str, Claim] = {}  # in the order in which room goes round
        self._turn_ends = clock() + TURN_SECONDS

    def ask(self, sweep: str, running: int, wanted: int, room: int, bundles: Sequence[Bundle] = ()) -> tuple[int, int]:
        """Return how many trials a sweep may run now, and how many sweeps there are."""
        now = self.clock()
        self.claims = {name: claim for name, claim in self.claims.items() if now - claim.seen <= SILENT_SECONDS}
        if sweep not in self.claims:
            self.claims = {sweep: Claim()} | self.claims
        elif now >= self._turn_ends:
            first = next(iter(self.claims))
            self.claims[first] = self.claims.pop(first)
        if now >= self._turn_ends or len(self.claims) == 1:
            self._turn_ends = now + TURN_SECONDS
        claim = self.claims[sweep]
        claim.running, claim.wanted, claim.room = running, max(running, wanted), max(1, room)
        claim.bundles, claim.seen = bundles, now
        free = 1 - sum(other.held for other in self.claims.values())
        allowed = min(self._targets()[sweep], running + max(0, int(free * claim.room + ROUNDING)))
        claim.running = max(running, allowed)  # it starts them now
        return allowed, len(self.claims)

    def leave(self, sweep: str) -> bool:
        """Forget a sweep, and return whether any is left."""
        self.claims.pop(sweep, None)
        return bool(self.claims)

    def bundles(self) -> list[Bundle]:
        """Return what an autoscaler should make room for, since no trial of sweeps that share begins without room.

        The trials of a sweep that is alone begin and wait, which an autoscaler sees.
        """
        claims = self.claims.values() if len(self.claims) > 1 else ()
        return [bundle for claim in claims for bundle in claim.bundles]

    def _targets(self) -> dict[str, int]:
        claims, left, targets = self.claims, 1.0, {}
        by_need = sorted(claims, key=lambda sweep: claims[sweep].wanted / claims[sweep].room)
        for number, sweep in enumerate(by_need):
            share = min(claims[sweep].wanted / claims[sweep].room, left / (len(by_need) - number))
            left -= share
            targets[sweep] = int(share * claims[sweep].room + ROUNDING)
        left = 1 - sum(target / claims[sweep].room for sweep, target in targets.items())
        for sweep, claim in claims.items():
            if targets[sweep] < claim.wanted and 1 / claim.room <= left + ROUNDING:
                targets[sweep] += 1
                left -= 1 / claim.room
        return targets


class SharedCluster:
    """Asks the actor for one sweep, and never waits for it."""

    def __init__(self, sweep: str, say: Callable[[str], object] = lambda line: None) -> None:
        self.sweep, self._say = sweep, say
        self.limit: int | None = None  # of trials; None for the only sweep, or if the actor does not answer
        self.is_known = False  # no trial may start before the first answer
        self._sweeps = 1
        self._answered = time.monotonic()
        self._board, self._answer = _open_board(), None

    def ask(self, running: int, wanted: int, room: int, bundles: Sequence[Bundle]) -> None:
        """Take the last answer, and ask again, with a `Claim`."""
        import ray
        from ray.exceptions import RayError

        if self._answer is not None and ray.wait([self._answer], timeout=0)[0]:
            try:
                allowed, sweeps = ray.get(self._answer)
                self._take(allowed if sweeps > 1 else None, sweeps)
            except RayError:  # it ended with its last sweep, or with its node
                self._board = _open_board()
            self._answer = None
        if time.monotonic() - self._answered > SILENT_SECONDS:
            self.limit, self.is_known = None, True
        if self._answer is None:
            self._answer = self._board.ask.remote(self.sweep, running, wanted, room, bundles)

    def leave(self) -> None:
        self._board.leave.remote(self.sweep)

    def _take(self, limit: int | None, sweeps: int) -> None:
        self.limit, self.is_known, self._answered = limit, True, time.monotonic()
        if sweeps != self._sweeps:
            self._sweeps = sweeps
            self._say(
                f"{sweeps} sweeps share the cluster; each gets an equal part of it, as far as it has use for that."
                if sweeps > 1
                else "The other sweep has ended: this one has the whole cluster now."
            )


def _open_board():
    import ray

    make = bootstrap("search.runner.machines.sharing", "Shares")

    class Board:  # a nested one is pickled by value, as in `bootstrap`
        def __init__(self) -> None:
            self.shares = make()
            self.requested: list[Bundle] = []

        def ask(self, *claim: object) -> tuple[int, int]:
            answer = self.shares.ask(*claim)
            self._grow()
            return answer

        def _grow(self) -> None:
            from ray.autoscaler.sdk import request_resources

            if (bundles := self.shares.bundles()) != self.requested:
                self.requested = bundles
                request_resources(bundles=bundles)

        def leave(self, sweep: str) -> None:
            is_used = self.shares.leave(sweep)
            self._grow()
            if not is_used:
                ray.actor.exit_actor()

    where = {"name": NAME, "namespace": NAME, "lifetime": "detached", "get_if_exists": True, "max_restarts": -1}
    return ray.remote(Board).options(num_cpus=0, **where).remote()

"""Sweeps that share a cluster, simulated second by second: each has its part, and no room is given twice."""

import pytest

from search.runner.machines.sharing import SILENT_SECONDS, Shares

EPOCH = 5  # seconds


class Sweep:
    """A driver: it asks once a second, starts what it may, and gives room back at the end of an epoch.

    A trial takes `size` units of the cluster. The driver begins at a time, and may die without a word at another.
    """

    def __init__(self, name, trials, epochs, size=1, begins=0, dies=10**9):
        self.name, self.size, self.begins, self.dies = name, size, begins, dies
        self.waiting = [epochs * EPOCH] * trials  # seconds left of each
        self.running = []
        self.held = []  # units, second by second

    def step(self, shares, units, now):
        if not self.begins <= now < self.dies or not (self.waiting or self.running):
            self.held.append(0)
            if now < self.dies:
                shares.leave(self.name)
            return
        room = units // self.size
        most = min(room, len(self.running) + len(self.waiting))
        limit, _ = shares.ask(self.name, len(self.running), most, room)
        while self.waiting and len(self.running) < limit:
            self.running.append(self.waiting.pop())
        self.held.append(len(self.running) * self.size)
        for left in [left for left in self.running if left % EPOCH == 1]:
            if left == 1 or len(self.running) > limit:
                self.running.remove(left)
                self.waiting += [left - 1] * (left > 1)
        self.running = [left - 1 for left in self.running]

    def share(self, units, begin, seconds=60):
        return sum(self.held[begin : begin + seconds]) / units / seconds


def simulate(units, sweeps, seconds):
    now = 0
    shares = Shares(lambda: float(now))
    for now in range(seconds):
        for sweep in sweeps:
            sweep.step(shares, units, now)
        assert sum(sweep.held[now] for sweep in sweeps) <= units, now


@pytest.mark.parametrize("units", [1, 2, 3, 4, 7, 32])
def test_two_sweeps_have_half_of_any_minute_however_many_slots_there_are(units):
    first, second = Sweep("first", 10_000, 40), Sweep("second", 10_000, 3, begins=100)
    simulate(units, [first, second], 1000)
    assert first.share(units, 0, 99) == 1
    for begin in range(130, 940):
        assert first.share(units, begin) == pytest.approx(0.5, abs=0.1), begin
        assert second.share(units, begin) == pytest.approx(0.5, abs=0.1), begin


def test_five_sweeps_of_unequal_lengths_share_and_all_end():
    sweeps = [Sweep(str(n), trials=60 * (n + 1), epochs=2 + 3 * n, begins=40 * n) for n in range(5)]
    simulate(16, sweeps, 5000)
    for begin in range(220, 5000 - 60):
        wanting = [s for s in sweeps if all(s.held[begin - 30 : begin + 90])]
        for sweep in wanting:
            assert sweep.share(16, begin) >= 0.9 / 5, (begin, sweep.name)
    assert not any(sweep.waiting or sweep.running for sweep in sweeps)


def test_a_sweep_gets_no_more_than_it_wants_and_the_others_have_the_rest():
    small, large = Sweep("small", 2, 100), Sweep("large", 1000, 5)
    simulate(8, [small, large], 300)
    assert small.share(8, 100) == pytest.approx(2 / 8)
    assert large.share(8, 100) == pytest.approx(6 / 8)


def test_trials_of_other_sizes_count_by_what_they_take():
    thin, wide = Sweep("thin", 10_000, 5), Sweep("wide", 1000, 5, size=4)
    simulate(16, [thin, wide], 400)
    assert thin.share(16, 200) == pytest.approx(0.5, abs=0.1)
    assert wide.share(16, 200) == pytest.approx(0.5, abs=0.1)


def test_a_driver_that_dies_leaves_its_part_to_the_others():
    dead, alive = Sweep("dead", 1000, 5, dies=100), Sweep("alive", 1000, 5)
    simulate(4, [dead, alive], 200)
    assert alive.share(4, 100 + int(SILENT_SECONDS) + EPOCH + 1, 60) == 1


def test_an_autoscaler_hears_of_all_sweeps_while_they_share():
    shares = Shares(lambda: 0.0)
    shares.ask("alone", 2, 8, 2, [{"CPU": 1.0}] * 8)
    assert shares.bundles() == [], "its waiting trials tell the autoscaler"
    shares.ask("second", 0, 1, 2, [{"GPU": 1.0}])
    shares.ask("fixed", 0, 5, 2)
    assert sorted(map(str, shares.bundles())) == ["{'CPU': 1.0}"] * 8 + ["{'GPU': 1.0}"]
    assert shares.leave("second")
    assert shares.leave("fixed")
    assert shares.bundles() == []
    assert not shares.leave("alone")

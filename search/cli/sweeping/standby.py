"""Commands that keep Ray up on this machine between sweeps."""

from __future__ import annotations

from typing import Annotated

import typer


def up(
    minutes: Annotated[float, typer.Option(min=0.1, help="It ends so long after the last sweep.")] = 30.0,
) -> None:
    """Start Ray on this machine and keep it up, so that the next sweeps in this folder start at once.

    It takes about 1 GB of memory. One sweep at a time uses it; others start their own.
    """
    from search.runner.machines.keeper import bring_up

    print(bring_up(minutes))


def down() -> None:
    """End the Ray that `sweep up` started."""
    from search.runner.machines.keeper import take_down

    print(take_down())

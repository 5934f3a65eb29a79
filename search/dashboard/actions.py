"""What the buttons do: each becomes the request that a command would send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from search.followup.requests import (
    Target,
    request_end,
    request_extension,
    request_pause,
    request_stop,
    request_text,
)
from training.errors import UserError

Values = Mapping[str, Any]


def carry_out(target: Target, values: Values) -> str:
    """Carry out what a button asks for, and return a sentence for the user.

    Args:
        target: The sweep.
        values: `action`, and what that action needs.

    Raises:
        UserError: the request is refused.
    """
    action = ACTIONS.get(str(values.get("action")))
    if action is None:
        raise UserError(f"action={values.get('action')}: choose one of {', '.join(ACTIONS)}.")
    return action(target, values)


def _extend(target: Target, values: Values) -> str:
    trials = values.get("trials")
    if not isinstance(trials, int) or isinstance(trials, bool):
        raise UserError(f"trials={trials}: give a whole number.")
    return request_extension(target, trials)


def _end(target: Target, values: Values) -> str:
    if target.uri is None:
        return request_end(target.record.folder)
    from search.tracking.remote import request_stop as request_end_by_store

    request_end_by_store(target.uri, target.experiment, target.record.name)
    return f"{target.record.name} will end when its driver has read the request, within about 10 seconds."


ACTIONS: dict[str, Callable[[Target, Values], str]] = {
    "stop": lambda target, values: request_stop(target, str(values.get("trial"))),
    "add": lambda target, values: request_text(target, str(values.get("recipe", ""))),
    "pause": lambda target, values: request_pause(target, True),
    "continue": lambda target, values: request_pause(target, False),
    "extend": _extend,
    "end": _end,
}

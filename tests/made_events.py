"""Events for tests from plain values, which a line of a ledger has too."""

import json

from ledger.events import AnyEvent, decode


def make_event(values: dict) -> AnyEvent:
    """Build an event; the value `event` names the kind."""
    return decode(json.dumps(values).encode())

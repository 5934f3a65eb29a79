"""What the adapter makes of Ray's messages about workers that are gone."""

from types import SimpleNamespace

import pytest

from search.core.controller import Controller
from search.runner.ray_adapter import LedgerScheduler
from search.storage.ledger import Ledger
from spaces.load import load_space

# As Ray 2.60 prints them, shortened.
SIGTERM = (
    "The actor died unexpectedly before finishing this task.\nThe actor is dead because its worker process has died. "
    "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker exits unexpectedly. The process receives a SIGTERM."
)
KILLED = (
    "The actor died unexpectedly before finishing this task.\nThe actor is dead because its worker process has died. "
    "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2."
)
NODE = (
    "The actor died unexpectedly before finishing this task.\nThe actor died because its node has died. Node Id: 0f0f"
)
AWAY = "The actor b9 is unavailable: The actor is temporarily unavailable: RpcError: RPC error: Socket closed rpc_code: 14."


@pytest.mark.parametrize(
    ("message", "cause"), [(SIGTERM, "preemption"), (NODE, "preemption"), (AWAY, "preemption"), (KILLED, "worker")]
)
def test_a_lost_machine_does_not_count_as_a_worker_that_died(message, cause, tmp_path):
    controller = Controller(load_space("quick"), Ledger(tmp_path / "ledger.jsonl"))
    controller.next_trial()
    trial = SimpleNamespace(trial_id="x", config={"trial": 0}, get_error=lambda: message)
    LedgerScheduler(controller, lambda: False).on_trial_error(None, trial)
    lost = controller.ledger.events[-1]
    assert (lost.event, lost.cause) == ("lost", cause)
    assert lost.reason in message

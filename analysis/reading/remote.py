"""Sweeps that run on other machines: their ledgers are artifacts of their runs in MLflow."""

from __future__ import annotations

import tempfile
from pathlib import Path

from analysis.reading.run_store import open_experiments
from analysis.reading.store import artifact_errors
from ledger.folder import SweepFolder
from ledger.formatting import mask_secrets
from ledger.record import SweepRecord
from training.errors import UserError
from training.process.text_files import refuse_irregular, unpack

LEDGER = "ledger.jsonl.gz"  # an artifact of a sweep's run
LARGEST_LEDGER = 2**30  # bytes; 10,000 trials of 30 epochs take about 150 MB
GZIP = b"\x1f\x8b"  # the first bytes of a compressed file (RFC 1952, section 2.3.1)


def fetch_record(uri: str, name: str) -> SweepRecord:
    """Read the latest sweep with this name from the ledger that its driver copies to MLflow."""
    with tempfile.TemporaryDirectory() as folder, open_experiments(uri) as opened:
        run = opened.find(name)
        # A run without a state is of a driver that runs, or that was killed, because then it cannot write one.
        copy = SweepFolder(Path(folder, name), known_running=run.data.tags.get("state", "running") == "running")
        copy.path.mkdir()
        with artifact_errors(uri, LEDGER):
            names = {file.path for file in opened.client.list_artifacts(run.info.run_id)}
        if LEDGER not in names:
            raise UserError(
                f"{name}: its run in {mask_secrets(uri)} does not have the ledger. A driver that runs copies it every half "
                "minute; else read the sweep where its folder is."
            )
        with artifact_errors(uri, LEDGER):
            fetched = Path(opened.client.download_artifacts(run.info.run_id, LEDGER, str(copy.path)))
            refuse_irregular(fetched)
            content = fetched.read_bytes()
            # Some stores mark the file as compressed, and then the client has unpacked it already.
            copy.ledger.write_bytes(unpack(content, LARGEST_LEDGER) if content.startswith(GZIP) else content)
        return SweepRecord.open(copy, only_shown=True)

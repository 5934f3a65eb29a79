"""Secrets stay in the environment: all output has them masked, and a resume reads them from there again."""

from __future__ import annotations

import logging
import os
import traceback
from urllib.parse import urlsplit, urlunsplit

from ledger.formatting import MASK, mask_secrets, remove_controls
from training.errors import UserError

URI, USERNAME, PASSWORD = "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"


def refuse_secret(uri: str, option: str) -> str:
    """Return an address from the command line or the environment unchanged."""
    if mask_secrets(uri) != uri and uri != os.environ.get(URI):
        raise UserError(
            f"{option} {mask_secrets(uri)}: every user of this machine can read a password on the command line. "
            f"Set {URI} to the whole address instead. For a server you can also leave the password out and set {USERNAME} "
            f"and {PASSWORD}."
        )
    return uri


def complete_uri(uri: str) -> str:
    """Add the secrets from the environment to the address that a ledger keeps."""
    if MASK not in uri:
        return uri
    if mask_secrets(given := os.environ.get(URI, "")) == uri:
        return given
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https") and USERNAME in os.environ and PASSWORD in os.environ:
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    server = f", or {USERNAME} and {PASSWORD}" if parts.scheme in ("http", "https") else ""
    raise UserError(
        f"{URI}: this sweep logs to {uri}, and a ledger never keeps a password. Set {URI} to the whole address{server}, "
        "and run the command again."
    )


def mask_logs() -> None:
    """Mask the records of all loggers of this process, and remove what could command a terminal from them."""
    make_record = logging.getLogRecordFactory()

    def make_masked(*arguments: object, **named: object) -> logging.LogRecord:
        record = make_record(*arguments, **named)
        record.msg, record.args = remove_controls(mask_secrets(record.getMessage())), ()
        if record.exc_info:
            text = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            record.exc_text = remove_controls(mask_secrets(text))
        return record

    logging.setLogRecordFactory(make_masked)

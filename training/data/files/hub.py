"""Data sets of the Hugging Face hub: their files are downloaded once per machine, into the hub's own cache."""

from __future__ import annotations

import logging
import os
from functools import partial
from typing import TYPE_CHECKING

from training.contract.specs import Data

if TYPE_CHECKING:
    from huggingface_hub import HfUri

HUB = "hf://"
CONVERTED = "refs/convert/parquet"  # where the hub keeps a Parquet copy of data sets in other formats

logger = logging.getLogger(__name__)


def download(spec: Data, root: str, endings: tuple[str, ...]) -> str:
    """Return the folder of this machine that has the files of `root` with one of the endings.

    What is complete on this machine is not asked for again, so that the trials of a sweep see the same files, also
    without a network.
    """
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, LocalEntryNotFoundError, RevisionNotFoundError

    uri = _read_address(spec, root)
    try:
        folder = _fetch(uri, uri.revision, endings)
        if folder is None and uri.revision is None and ".parquet" in endings:
            folder = _fetch(uri, CONVERTED, endings)
    except RevisionNotFoundError:
        folder = None
        if uri.revision:
            spec.refuse(f"it has no revision {uri.revision}", "Name another one, or none for the newest.")
    except HfHubHTTPError as error:
        reason = error.server_message or str(error).splitlines()[0]
        spec.refuse(
            f"the Hugging Face hub refuses it ({reason.rstrip('.')})", "Check the name, or log in: hf auth login."
        )
    except (LocalEntryNotFoundError, HTTPError):
        spec.refuse(
            "it is not complete on this machine, and the Hugging Face hub does not answer",
            "Check the network. Without one, give a folder that has the files.",
        )
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        spec.refuse(f"its download failed ({reason})", "Free space, or set HF_HOME to another folder.")
    if folder is None:
        spec.refuse(f"it has no {' or '.join(endings)} file", "Name another folder of it, or another data set.")
    return folder


def _read_address(spec: Data, root: str) -> HfUri:
    from huggingface_hub import parse_hf_uri
    from huggingface_hub.errors import HfUriError

    form = f"Write it as {HUB}datasets/OWNER/NAME, with @REVISION and /FOLDER where they are needed."
    try:
        uri = parse_hf_uri(root)
    except HfUriError:
        spec.refuse("this is no address of a data set", form)
    if uri.type != "dataset":
        spec.refuse(f"this is the address of a {uri.type}, not of a data set", form)
    return uri


def _fetch(uri: HfUri, revision: str | None, endings: tuple[str, ...]) -> str | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    wanted = [os.path.join(uri.path_in_repo, f"*{ending}") for ending in endings]
    fetch = partial(snapshot_download, uri.id, repo_type="dataset", revision=revision, allow_patterns=wanted)
    try:
        snapshot = fetch(local_files_only=True)
    except LocalEntryNotFoundError:
        logger.info("Downloading %s from the Hugging Face hub.", uri.to_uri())
        snapshot = fetch()
    folder = os.path.join(snapshot, uri.path_in_repo)
    has_files = any(name.lower().endswith(endings) for _, _, names in os.walk(folder) for name in names)
    return folder if has_files else None

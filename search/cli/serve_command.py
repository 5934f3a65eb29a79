"""`sweep serve`: an exported model behind a web server."""

from __future__ import annotations

import signal
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from analysis.export.forms import Form
from search.cli.options import With
from search.runner.interrupt import Interrupted


def serve(
    export: Annotated[Path, typer.Argument(help="A folder that `sweep export` wrote.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; `0.0.0.0`: also for other machines, without a password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; `0`: a free one.")] = 8000,
    model: Annotated[Form, typer.Option(help="Form of the model: its ONNX files need --onnx or --int8.")] = "torch",
    device: Annotated[str, typer.Option(help="`cpu`, `cuda`, `cuda:1`, `mps`; `auto`: a GPU if any.")] = "auto",
    max_mb: Annotated[int, typer.Option(min=1, max=1000, help="Largest request, in megabytes.")] = 20,
    with_: With = None,
) -> None:
    """Serve an exported model: a POST request with an image gets its label and probabilities."""
    from analysis.export.bundle import check_export

    check_export(export, model)
    from analysis.export.classifier import load_classifier
    from analysis.export.server import ModelServer

    with ModelServer(load_classifier(export, model, device), host, port, max_mb * 2**20) as server:
        print(f"Serving {export} (Ctrl-C ends it). Try it with an image of your own:", flush=True)
        print(f"curl --data-binary @image.png {server.address}", flush=True)
        if not ip_address(str(server.server_address[0])).is_loopback:
            print("Every machine that reaches this address can use the model: there is no password.", flush=True)
        try:
            server.serve_forever()
        except Interrupted as end:
            if end.number != signal.SIGINT:
                raise

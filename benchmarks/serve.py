"""Many clients of `sweep serve` at one time: failed requests, the times of the answers, and the server's memory.

python benchmarks/serve.py EXPORT IMAGE --clients 500
"""

import argparse
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil

PATIENCE_SECONDS = 300


def ask(port: int, content: bytes, start: threading.Barrier, times: list[float]) -> None:
    """Send one image, and add the seconds until its answer; a client without an answer adds nothing."""
    head = f"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    start.wait()
    began = time.perf_counter()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as client:
            client.sendall(head.encode() + content)
            if client.makefile("rb").readline().split()[1] == b"200":
                times.append(time.perf_counter() - began)
    except (OSError, IndexError):  # refused, reset, or no answer: this client has failed
        return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("export", type=Path)
    parser.add_argument("image", type=Path)
    parser.add_argument("--clients", type=int, default=500)
    asked = parser.parse_args()
    command = [sys.executable, "-m", "search", "serve", str(asked.export), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        port = int(server.stdout.readline().rpartition(":")[2].partition("/")[0])
        times: list[float] = []
        start = threading.Barrier(asked.clients)
        given = (port, asked.image.read_bytes(), start, times)
        clients = [threading.Thread(target=ask, args=given) for _ in range(asked.clients)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        memory = psutil.Process(server.pid).memory_info().rss >> 20
        server.terminate()
    middle, last = np.percentile(times, [50, 99])
    print(
        f"{asked.clients} clients: {asked.clients - len(times)} failed, median {middle:.2f} s, p99 {last:.2f} s, {memory} MB"
    )


if __name__ == "__main__":
    main()

"""The `sweep` command, also as `python -m search` where it is not installed."""

import os
import signal


def main() -> None:
    """Run the command; Ctrl-C ends it quietly also while it is still being imported."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from search.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()

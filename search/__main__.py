"""The `sweep` command, also as `python -m search` where it is not installed."""

import os
import signal
import sys


def main() -> None:
    """Run the command; Ctrl-C ends it quietly also while it is still being imported."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    # Names of files and classes are UTF-8 under each locale; Ray's workers inherit this. It is tried once.
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    from search.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()

"""`python -m search` is the `sweep` command, where it is not installed."""

from search.cli.main import main

if __name__ == "__main__":
    main()

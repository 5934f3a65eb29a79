"""Commands that run in the process of the test."""

from search.cli.main import app


def call(*arguments):
    return app([str(argument) for argument in arguments], standalone_mode=False)


def read(capsys, *arguments) -> str:
    """Return what a command prints on standard output."""
    capsys.readouterr()
    call(*arguments)
    return capsys.readouterr().out

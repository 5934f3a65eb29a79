"""Follow a ledger while its driver writes: each call reads only the lines that are new."""

from __future__ import annotations

from pathlib import Path

from search.storage.events import AnyEvent
from search.storage.ledger import check_format, damage_at, try_decode
from training.errors import UserError

CHUNK = 2 * 2**20  # bytes at a time: a page of a large sweep fills while the ledger is read


class LedgerTail:
    """Reads the events of a ledger that grows. The file may be missing at first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.forget()

    def forget(self) -> None:
        """Begin again at the first line."""
        self._offset = 0  # of the first byte that was not read
        self._lines = 0
        self._file: tuple[int, int] | None = None  # device and inode
        self.share = 1.0  # of the file that was read

    def read(self) -> list[AnyEvent] | None:
        """Return the next new events; None if the file was replaced, as by a repair, and must be read from its beginning.

        Raises:
            UserError: the file cannot be read, has another format, or is damaged.
        """
        try:
            with self.path.open("rb") as file:
                status = self.path.stat()
                if self._file not in (None, (status.st_dev, status.st_ino)) or status.st_size < self._offset:
                    self.forget()
                    return None
                self._file = (status.st_dev, status.st_ino)
                file.seek(self._offset)
                read = file.read(CHUNK) + file.readline()
                *lines, torn = read.split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"{self.path}: the ledger cannot be read ({error.strerror}).") from None
        if lines and not self._lines:
            check_format(self.path, lines[0])
        first = 1 if self._lines else 2  # of the lines that are events
        events = [self._decode(line, self._lines + number) for number, line in enumerate(lines[first - 1 :], first)]
        # Only now, so that a damaged line is met again.
        self._offset, self._lines = self._offset + len(read) - len(torn), self._lines + len(lines)
        self.share = self._offset / status.st_size if len(read) > CHUNK else 1.0
        return events

    def _decode(self, line: bytes, number: int) -> AnyEvent:
        if (event := try_decode(line)) is None:
            raise damage_at(self.path, number)
        return event

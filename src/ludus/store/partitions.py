"""Records in many partitions, in one temporary file.

Each part has a small buffer in memory. A full buffer becomes a block of the file, so a thousand parts need one open
file and a few megabytes.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator

from ludus.store.scratch import Scratch, explains_full_disk, full_disk

_BLOCK = 1 << 12
_FILE_BUFFER = 1 << 18


class Partitions:
    """`add` records to parts, then `take` each part once."""

    def __init__(self, scratch: Scratch, count: int) -> None:
        with explains_full_disk():
            self._file = scratch.file(_FILE_BUFFER)
        self._buffers = [bytearray() for _ in range(count)]
        self._blocks = [array("Q") for _ in range(count)]  # offset and length of each block of a part, in turn
        self._end = 0

    def add(self, part: int, record: bytes) -> None:
        """Add a record to the end of a part."""
        buffer = self._buffers[part]
        buffer += record
        if len(buffer) >= _BLOCK:
            self._blocks[part].extend((self._end, len(buffer)))
            self._end += len(buffer)
            try:
                self._file.write(buffer)
            except OSError as error:
                raise full_disk(error) from error
            buffer.clear()

    def blocks(self, part: int) -> Iterator[bytes]:
        """The records of a part, in the order in which they were added, a few whole records at a time."""
        places = self._blocks[part]
        with explains_full_disk():
            self._file.flush()
        for at in range(0, len(places), 2):
            with explains_full_disk():
                block = os.pread(self._file.fileno(), places[at + 1], places[at])
            yield block
        yield bytes(self._buffers[part])

    def read(self, part: int) -> bytes:
        """All records of a part, in the order in which they were added."""
        return b"".join(self.blocks(part))

    def take(self, part: int) -> bytes:
        """Remove and return all records of a part."""
        records = self.read(part)
        self._buffers[part], self._blocks[part] = bytearray(), array("Q")
        return records

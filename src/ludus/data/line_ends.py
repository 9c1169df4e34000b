"""The lines of a file of JSON rows with any line ends: LF, CR LF, or the lone CR of old Macs.

Memory is bounded by the longest row. Runs of blank lines are skipped in blocks, so that a small archive cannot unpack
to hours of reading.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator

#: How much of a line without an end is read at once.
_PIECE = 2**20

#: After this many blank lines, the following ones are skipped at once.
_BLANKS = 64


class LongLine(Exception):
    """A line is longer than allowed. `number` is its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def numbered_lines(file: io.BufferedReader, max_size: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, each with its number."""
    number, blanks = 0, 0  # lines so far, and blank lines just before
    held = bytearray()  # a line without its end
    while piece := file.readline(_PIECE):
        if not held and piece.endswith(b"\n") and piece.find(b"\r", 0, len(piece) - 2) < 0:
            number += 1
            if not piece.isspace():
                blanks = 0
                yield number, piece
                continue
            blanks += 1
            if blanks >= _BLANKS:
                number += skip_blank_lines(file)
            continue
        scanned = max(len(held) - 1, 0)
        held += piece
        # The last byte may be the first half of CR LF: then the line ends with the next piece.
        end = len(held) if piece.endswith(b"\n") else held.rfind(b"\r", scanned, len(held) - 1) + 1
        if end:
            number = yield from _split(bytes(held[:end]), number)
            del held[:end]
        if len(held) > max_size:
            raise LongLine(number + 1)
    yield from _split(bytes(held), number)


def skip_blank_lines(file: io.BufferedReader) -> int:
    """Skip the blank lines that follow. Returns their number."""
    count = 0
    while seen := file.peek():
        blank = seen[: len(seen) - len(seen.lstrip())]
        blank = blank[: blank.rfind(b"\n") + 1]
        if not blank:
            break
        count += _line_ends(file.read(len(blank)))
    return count


def _split(lines: bytes, number: int) -> Generator[tuple[int, bytes], None, int]:
    """The lines that are not blank. The first line follows line `number`; returns the number of the last."""
    if lines.isspace():
        return number + _line_ends(lines)
    for number, line in enumerate(lines.splitlines(), start=number + 1):  # noqa: B020
        if line and not line.isspace():
            yield number, line
    return number


def _line_ends(text: bytes) -> int:
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")

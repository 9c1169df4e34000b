"""Frames: how messages between our own processes are told apart in a stream of bytes.

A frame is a header, a head and a body. The header holds the lengths of the other two. A frame that ends early, because
the sender died, is dropped. Only the standard library is imported here: child processes and the supervisor inside a
sandbox read frames, too.
"""

from __future__ import annotations

from struct import Struct

#: The lengths of the head and of the body.
HEADER = Struct("!IQ")


def frame_start(head: bytes, size: int) -> bytes:
    """A frame up to its body, which has `size` bytes."""
    return HEADER.pack(len(head), size) + head

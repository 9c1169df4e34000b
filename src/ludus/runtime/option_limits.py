"""The largest numbers that options accept."""

from __future__ import annotations

#: orjson writes 64-bit integers: the bound of seeds and row counts.
MAX_INT64 = 2**63 - 1

#: The bound of repeats, attempts and concurrency, which cost memory.
MAX_COUNT = 1_000_000

#: The bound of worker processes: each takes the memory of a Python process and of its model.
MAX_WORKERS = 256

"""How large a number may be that a person types: more than anybody needs, and no more than files can record."""

from __future__ import annotations

#: The largest number that JSON as we write it can hold: for seeds, and for rows.
LARGEST = 2**63 - 1

#: For what is counted or kept in memory: repeats, attempts, rollouts at once.
MOST = 1_000_000

"""An endless stream of tasks for the office, each with the actions that solve it.

    ludus collect workplace_assistant --dataset stream --limit 100 --model MODEL

The same seed gives the same rows. A request names everything that its actions need, and only these actions fulfil it.
Run as a program, this module writes the tables and the example rows that ship with the environment:

    python -m ludus.environments.workplace_assistant.generate FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import orjson

from ludus.environments.workplace_assistant.drawing import Draw
from ludus.environments.workplace_assistant.families import FAMILIES, Family
from ludus.environments.workplace_assistant.generate_tables import files
from ludus.environments.workplace_assistant.tables import Tables
from ludus.errors import UserError, did_you_mean

SEED = 0
EXAMPLES = 30

#: How many draws in a row may give no task.
MAX_MISSES = 1000

SYSTEM = (
    "You are the assistant of Robin, who works at Harbourlight. Get done what Robin asks for with the tools that you"
    " have, and change nothing else. It is Thursday, 2023-11-30, 23:59:00. Meetings begin at 9:00 at the earliest and"
    " end at 18:00 at the latest."
)


def stream(seed: int, *, tables: str | None = None, category: str | None = None) -> Iterator[dict[str, Any]]:
    """Endless rows of all kinds in turn, or of one category.

    `tables` is the folder in `resources.tables`; without it, the tables are those that ship with the environment.
    """
    categories = sorted({family.category for family in FAMILIES})
    if category is not None and category not in categories:
        raise UserError(f"there is no category {category}", did_you_mean(category, categories))
    families = [family for family in FAMILIES if category in (None, family.category)]
    return _rows(seed, Tables.load(Path(tables) if tables else None), families)


def write(folder: Path) -> None:
    """Write the tables and the example rows."""
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    for name, content in files(SEED).items():
        (folder / "tables" / name).write_text(content, encoding="utf-8", newline="")
    rows = stream(SEED, tables=str(folder / "tables"))
    lines = b"".join(orjson.dumps(next(rows)) + b"\n" for _ in range(EXAMPLES))
    (folder / "example.jsonl").write_bytes(lines)


def _rows(seed: int, tables: Tables, families: list[Family]) -> Iterator[dict[str, Any]]:
    last = -1
    for number in count():
        family = families[number % len(families)]
        question, actions = family.ask(Draw(tables, Random(f"{seed}/{number}")))
        if not actions:
            if number - last > MAX_MISSES:
                raise UserError("no task can be made from these tables", "Check the folder in data.tables.")
            continue
        last = number
        yield {
            "id": number,
            "responses_create_params": {
                "input": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}],
                "parallel_tool_calls": False,
            },
            "ground_truth": [
                {"name": name, "arguments": orjson.dumps(arguments).decode()} for name, arguments in actions
            ],
            "category": f"workplace_assistant_{family.category}",
            "environment_name": "workplace_assistant",
        }


if __name__ == "__main__":
    write(Path(sys.argv[1]))

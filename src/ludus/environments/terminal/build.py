"""Turns a folder of tasks into a file of rows, which travels to other machines.

python -m ludus.environments.terminal.build TASKS > tasks.jsonl
python -m ludus.environments.terminal.build data/tasks > data/example.jsonl
"""

from __future__ import annotations

import json
import sys

from ludus import UserError
from ludus.environments.terminal.tasks import stream


def written(folder: str) -> str:
    """The rows of a folder as JSON lines."""
    rows = stream(0, path=folder)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m ludus.environments.terminal.build FOLDER")
    try:
        sys.stdout.write(written(sys.argv[1]))
    except UserError as error:
        sys.exit(str(error))

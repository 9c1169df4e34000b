"""The program behind `generate.py`: draws puzzles from the library and writes them as rows, one a line.

It is told what to draw on its standard input. A mistake in that is answered by one line with the key `error`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import sys
from collections.abc import Iterator
from hashlib import blake2b
from typing import IO, Any

from reasoning_gym.factory import DATASETS, create_dataset

from ludus.environments.reasoning_gym.scoring import families as known_families
from ludus.errors import UserError, did_you_mean
from ludus.task import derive_seed

Row = dict[str, Any]

#: How many puzzles come from one seed before the next one, and how many draws without a new one end a family.
CHUNK = 500
PATIENCE = 200

#: Families that are drawn only when they are named: this one runs programs that a language model wrote.
ONLY_BY_NAME = {"codeio"}


@dataclasses.dataclass
class Source:
    """One family in the mix."""

    name: str
    weight: float = 1.0
    config: dict[str, Any] = dataclasses.field(default_factory=dict)


def rows(seed: int, families: Any, instruction: str) -> Iterator[Row]:
    """Draw a family by weight and a puzzle from it, until every family is exhausted."""
    chosen = sources(families)
    seen: set[int] = set()  # under a hundred bytes a row, however long its question
    puzzles = {source.name: draws(source, seed, seen) for source in chosen}
    order = random.Random(seed)
    while chosen:
        source = order.choices(chosen, [each.weight for each in chosen])[0]
        puzzle = next(puzzles[source.name], None)
        if puzzle is None:
            chosen.remove(source)
        else:
            yield as_row(puzzle, source, instruction)


def draws(source: Source, seed: int, seen: set[int]) -> Iterator[Row]:
    """The puzzles of one family whose questions were not asked before."""
    misses, failure, fruitful = 0, None, False
    for chunk in itertools.count():
        start = derive_seed(seed, source.name, chunk)
        dataset = create_dataset(source.name, **source.config, seed=start, size=CHUNK)
        for index in range(CHUNK):
            random.seed(start + index)  # a family that draws from the global random numbers repeats itself as well
            try:
                puzzle = plain(dataset[index])
            except Exception as error:
                puzzle, failure = None, error
            if puzzle is not None and (key := mark(puzzle["question"])) not in seen:
                seen.add(key)
                misses, fruitful = 0, True
                yield puzzle
                continue
            misses += 1
            if misses == PATIENCE and (fruitful or failure is None):
                return
            if misses == PATIENCE:
                raise UserError(f"families.{source.name} gives no puzzles: {type(failure).__name__}: {failure}")
            if isinstance(failure, IndexError):  # it has no more for this seed
                failure = None
                break


def plain(puzzle: Any) -> Row | None:
    """A puzzle as JSON will show it; None for one that is answered by nothing."""
    made: Row = json.loads(json.dumps(puzzle, default=str, allow_nan=False))
    answer = made["answer"]
    return made if answer is None or (isinstance(answer, str) and answer.strip()) else None


def mark(question: str) -> int:
    """Eight bytes in place of a question. Two questions that share them cost one puzzle, and repeat none."""
    return int.from_bytes(blake2b(question.encode(), digest_size=8).digest(), "big")


def as_row(puzzle: Row, source: Source, instruction: str) -> Row:
    """A puzzle as a row of a dataset. Settings travel with it, since scorers of the library depend on them."""
    question = puzzle["question"]
    content = f"{question}\n\n{instruction}" if instruction else question
    row = {"responses_create_params": {"input": [{"role": "user", "content": content}]}}
    row |= {"question": question, "answer": puzzle["answer"], "metadata": puzzle["metadata"]}
    return row | {"config": source.config} if source.config else row


def sources(families: Any) -> list[Source]:
    """What to draw from: names or categories, alone or in a list, or as keys with a weight or with settings."""
    names = [families] if isinstance(families, str) else families
    if not isinstance(names, (list, dict)):
        raise UserError(
            f"families={families!r:.60} must be a name, a list of names, or a mapping from names to weights"
        )
    wanted = names if isinstance(names, dict) else dict.fromkeys(names, 1)
    found: dict[str, Source] = {}
    for name, how in wanted.items():
        for family in named(name):
            found[family] = configured(family, how if isinstance(how, dict) else {"weight": how})
    if not found:
        raise UserError("families names no family", "Example: families=[gcd, logic]")
    return list(found.values())


def named(name: str) -> list[str]:
    """The families that a name stands for."""
    known = known_families()
    if name in known:
        return [name]
    members = [family for family, category in known.items() if name in ("all", category) and family not in ONLY_BY_NAME]
    if not members:
        raise UserError(f"there is no family {name}", did_you_mean(str(name), {*known, *known.values(), "all"}))
    return members


def configured(name: str, how: dict[str, Any]) -> Source:
    """A family with its weight and settings, checked by making one dataset of it."""
    if extra := how.keys() - {"weight", "config"}:
        raise UserError(f"families.{name} has no setting {min(extra)}", "Known: config, weight")
    source = Source(name, how.get("weight", 1), how.get("config") or {})
    if not isinstance(source.weight, (int, float)) or not 0 < source.weight < float("inf"):
        raise UserError(f"families.{name}: weight={source.weight!r} must be a number above 0")
    settings = {field.name for field in dataclasses.fields(DATASETS[name][1])} - {"seed", "size"}
    for key in source.config:
        if key not in settings:
            raise UserError(f"families.{name} has no setting {key}", did_you_mean(key, settings))
    try:
        if source.config:
            create_dataset(name, **source.config, seed=0, size=CHUNK)
    except Exception as error:
        raise UserError(f"families.{name}: {type(error).__name__}: {error}") from error
    return source


def main() -> None:
    """Write rows for as long as somebody reads them. What the library prints goes nowhere."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            _write(output, json.load(sys.stdin))
        except BrokenPipeError:
            os._exit(0)


def _write(output: IO[str], request: dict[str, Any]) -> None:
    try:
        for row in rows(**request):
            print(json.dumps(row), file=output, flush=True)
    except UserError as error:
        print(json.dumps({"error": str(error)}), file=output, flush=True)


if __name__ == "__main__":
    main()

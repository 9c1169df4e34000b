"""The program behind `generate.py`: draws puzzles from the library and writes them as rows, one a line.

It reads its request from standard input. If the request is wrong, it writes one line with the key `error`.
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

#: How many puzzles are drawn from one seed, and how many draws in a row without a new puzzle end a family.
CHUNK = 500
MAX_MISSES = 200

#: Families that are drawn only if they are named: `codeio` runs programs that a language model wrote.
ONLY_BY_NAME = {"codeio"}


@dataclasses.dataclass
class Source:
    """One family in the mix."""

    name: str
    weight: float = 1.0
    config: dict[str, Any] = dataclasses.field(default_factory=dict)


def rows(seed: int, families: Any, instruction: str) -> Iterator[Row]:
    """Draw a family by weight and a puzzle from the family, until every family is exhausted."""
    chosen = sources(families)
    seen: set[int] = set()  # hashes: less than a hundred bytes a row, however long its question
    puzzles = {source.name: draws(source, seed, seen) for source in chosen}
    order = random.Random(seed)
    while chosen:
        source = order.choices(chosen, [family.weight for family in chosen])[0]
        puzzle = next(puzzles[source.name], None)
        if puzzle is None:
            chosen.remove(source)
        else:
            yield as_row(puzzle, source, instruction)


def draws(source: Source, seed: int, seen: set[int]) -> Iterator[Row]:
    """The puzzles of one family, without repeated questions."""
    misses, failure, found_any = 0, None, False
    for chunk in itertools.count():
        start = derive_seed(seed, source.name, chunk)
        dataset = create_dataset(source.name, **source.config, seed=start, size=CHUNK)
        for index in range(CHUNK):
            random.seed(start + index)  # for families that use the global random numbers
            try:
                puzzle = through_json(dataset[index])
            except Exception as error:
                puzzle, failure = None, error
            if puzzle is not None and (key := digest(puzzle["question"])) not in seen:
                seen.add(key)
                misses, found_any = 0, True
                yield puzzle
                continue
            misses += 1
            if misses == MAX_MISSES and (found_any or failure is None):
                return
            if misses == MAX_MISSES:
                raise UserError(f"families.{source.name} gives no puzzles: {type(failure).__name__}: {failure}")
            if isinstance(failure, IndexError):  # the family has no more puzzles for this seed
                failure = None
                break


def through_json(puzzle: Any) -> Row | None:
    """A puzzle as it reads back from JSON; None if its answer is blank."""
    read_back: Row = json.loads(json.dumps(puzzle, default=str, allow_nan=False))
    answer = read_back["answer"]
    return read_back if answer is None or (isinstance(answer, str) and answer.strip()) else None


def digest(question: str) -> int:
    """An eight-byte hash of a question. A collision only drops a puzzle."""
    return int.from_bytes(blake2b(question.encode(), digest_size=8).digest(), "big")


def as_row(puzzle: Row, source: Source, instruction: str) -> Row:
    """A puzzle as a row of a dataset, with the family's settings, which the library's scorers use."""
    question = puzzle["question"]
    content = f"{question}\n\n{instruction}" if instruction else question
    row = {"responses_create_params": {"input": [{"role": "user", "content": content}]}}
    row |= {"question": question, "answer": puzzle["answer"], "metadata": puzzle["metadata"]}
    return row | {"config": source.config} if source.config else row


def sources(families: Any) -> list[Source]:
    """The families to draw from, given as a name or a category, a list of them, or a mapping to weights or settings."""
    names = [families] if isinstance(families, str) else families
    if not isinstance(names, (list, dict)):
        raise UserError(
            f"families={families!r:.60} must be a name, a list of names, or a mapping from names to weights"
        )
    requested = names if isinstance(names, dict) else dict.fromkeys(names, 1)
    by_family: dict[str, Source] = {}
    for name, value in requested.items():
        for family in families_named(name):
            by_family[family] = configured(family, value if isinstance(value, dict) else {"weight": value})
    if not by_family:
        raise UserError("families names no family", "Example: families=[gcd, logic]")
    return list(by_family.values())


def families_named(name: str) -> list[str]:
    """The family of this name, or all families of the category."""
    known = known_families()
    if name in known:
        return [name]
    members = [family for family, category in known.items() if name in ("all", category) and family not in ONLY_BY_NAME]
    if not members:
        raise UserError(f"there is no family {name}", did_you_mean(str(name), {*known, *known.values(), "all"}))
    return members


def configured(name: str, options: dict[str, Any]) -> Source:
    """A family with its weight and settings. Making one dataset checks the settings."""
    if extra := options.keys() - {"weight", "config"}:
        raise UserError(f"families.{name} has no setting {min(extra)}", "Known: config, weight")
    source = Source(name, options.get("weight", 1), options.get("config") or {})
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
    """Write rows until the reader closes the pipe. Output that the library prints is discarded."""
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

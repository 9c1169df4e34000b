"""Pairs of answers for a reward model: written ones with more and fewer faults, and answers of a policy.

No verifier takes part. A pair prefers the answer with fewer faults, and any written answer without fault to the answer
of the policy. Faults make an answer longer as often as shorter, so that length tells nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

Row = dict[str, Any]
#: Writes an answer to a task with a number of faults.
Writer = Callable[[Row, int, random.Random], str]

#: The most faults of a written answer.
MOST = 3


def find_digit_answer(row: Row, faults: int, draw: random.Random) -> str:
    """The digit; with one fault another digit, with two a sign or nothing, with three several symbols."""
    digit = str(row["digit"])
    others = [other for other in "0123456789" if other != digit]
    if faults == 2:
        return draw.choice(["+", "-", "=", " ", ""])
    return digit if faults == 0 else draw.choice(others) + (draw.choice("0123456789+-= ") if faults == 3 else "")


def sort_numbers_answer(row: Row, faults: int, draw: random.Random) -> str:
    """The sorted numbers. A fault swaps two, drops one, repeats one, changes one, or adds words."""
    numbers = [str(number) for number in sorted(row["numbers"])]
    before, separator = "", draw.choice([" ", ", "])
    for _ in range(faults):
        kind, at = draw.choice(["swap", "swap", "drop", "repeat", "change", "words"]), draw.randrange(len(numbers))
        if kind == "swap":
            other = draw.randrange(len(numbers))
            numbers[at], numbers[other] = numbers[other], numbers[at]
        elif kind == "drop" and len(numbers) > 2:
            del numbers[at]
        elif kind == "repeat":
            numbers.insert(at, numbers[at])
        elif kind == "change":
            numbers[at] = str(draw.randrange(1, 100))
        else:
            before = draw.choice(["Sorted: ", "The numbers in ascending order are: ", "Sure! ", "Here they are:\n\n"])
    return before + separator.join(numbers)


WRITERS: dict[str, Writer] = {"find_digit": find_digit_answer, "sort_numbers": sort_numbers_answer}


def demonstrations(write: Writer, rows: Iterable[Row], count: int, seed: int) -> list[Row]:
    """Answers in the right form that are right in one of ten cases only: a policy learns the form from them."""
    draw = random.Random(seed)
    return [
        {
            "prompt": conversation(row["responses_create_params"]["input"], "")[:1],
            "completion": conversation("", write(row, int(draw.random() >= 0.1), draw))[1:],
        }
        for row in rows
        for _ in range(count)
    ]


def written_pairs(write: Writer, rows: Iterable[Row], count: int, seed: int) -> list[Row]:
    """`count` pairs of written answers for every task. Pairs of equal answers are left out."""
    draw, pairs = random.Random(seed), []
    for row in rows:
        for _ in range(count):
            fewer = draw.choice([0, 0, *range(1, MOST)])
            better, worse = write(row, fewer, draw), write(row, draw.randint(fewer + 1, MOST), draw)
            if better != worse:
                pairs.append(pair(row, better, worse))
    return pairs


def policy_pairs(write: Writer, rows: Iterable[Row], answers: dict[str, list[str]], seed: int) -> list[Row]:
    """A written answer without fault against each answer of the policy. `answers` has them by prompt."""
    draw, pairs = random.Random(seed), []
    for row in rows:
        for answer in answers.get(row["responses_create_params"]["input"], []):
            written = write(row, 0, draw)
            if "".join(written.split()) != "".join(answer.split()):
                pairs.append(pair(row, written, answer))
    return pairs


def pair(row: Row, better: str, worse: str) -> Row:
    """A row of `ludus data export --to rm`: two whole conversations."""
    return {
        "chosen": conversation(row["responses_create_params"]["input"], better),
        "rejected": conversation(row["responses_create_params"]["input"], worse),
    }


def conversation(asked: str, answer: str) -> list[dict[str, str]]:
    """A question and its answer."""
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]

"""Three environments that are small enough to learn in minutes, with rewards that are graded from the start, and one
of Ludus.

A small model is rarely right at first. A reward of 0 or 1 would give it groups of equal rewards, and no gradient.

| environment | model | task |
| --- | --- | --- |
| `find_digit` | the micro model, on a CPU | a digit and a sign, in either order; answer the digit |
| `sort_numbers` | SmolLM2-135M, on a GPU | answer five numbers in ascending order |
| `additions` | SmolLM2-135M, on a GPU | several turns: add numbers to a counter with a tool, one call for each |
| `text_to_sql` | a model that writes SQL, on a GPU | the built-in environment, with the rows of `sql_rows.py` |
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from sql_rows import sql_rows

import ludus
from ludus import Resources, Response, Verdict, tool

Row = dict[str, Any]


class FindDigit(Resources):
    """Answer the digit of the question: 0.2 for an answer of one digit, 0.8 more if it is the right one."""

    class Task(ludus.Task):
        digit: int

    async def verify(self, task: Task, response: Response) -> Verdict:
        text = response.output_text
        parts = {"form": 0.2 * bool(re.fullmatch(r"[0-9]", text)), "right": 0.8 * (text == str(task.digit))}
        return Verdict(sum(parts.values()), components=parts, exact=text == str(task.digit))


class SortNumbers(Resources):
    """Answer five numbers in ascending order. 0.8 for the share of right places, 0.2 for an answer of numbers only."""

    class Task(ludus.Task):
        numbers: list[int]

    async def verify(self, task: Task, response: Response) -> Verdict:
        text = response.output_text.strip()
        answered = [int(digits) for digits in re.findall(r"\d{1,9}", text)]
        wanted = sorted(task.numbers)
        right = sum(one == other for one, other in zip(answered, wanted, strict=False)) / len(wanted)
        plain = 1.0 if re.fullmatch(r"[\d\s,]+", text) and len(answered) == len(wanted) else 0.0
        parts = {"places": 0.8 * right, "plain": 0.2 * plain}
        return Verdict(sum(parts.values()), components=parts, exact=answered == wanted)


class Additions(Resources):
    """Add numbers to a counter, one tool call for each, in the order of the task. Each right call is rewarded."""

    class Task(ludus.Task):
        numbers: list[int]

    async def open(self, task: Task) -> None:
        self.added: list[int] = []

    @tool
    async def add(self, number: int) -> str:
        """Add a number to the counter."""
        self.added.append(number)
        return f"The counter is {sum(self.added)}."

    async def verify(self, task: Task, response: Response) -> Verdict:
        wanted, added = task.numbers, self.added
        right = [one == other for one, other in zip(added, wanted, strict=False)]
        extra = max(0, len(added) - len(wanted))
        reward = max(0.0, sum(right) / len(wanted) - 0.25 * extra)
        turns = [float(is_right) / len(wanted) for is_right in right] + [-0.25] * extra
        return Verdict(reward, turn_rewards=turns, exact=added == wanted)


def find_digit_rows(count: int, seed: int) -> list[Row]:
    """All questions in a random order, at most `count` of 80."""
    asked = [(text, digit) for digit in range(10) for sign in "+-= " for text in (f"{digit}{sign}", f"{sign}{digit}")]
    random.Random(seed).shuffle(asked)
    return [_row(text, digit=digit, max_output_tokens=2) for text, digit in asked[:count]]


def sort_numbers_rows(count: int, seed: int) -> list[Row]:
    """Five different numbers below 100 in each row."""
    rows = []
    for numbers in _different(count, seed, lambda draw: draw.sample(range(1, 100), 5)):
        asked = f"Sort these numbers in ascending order: {' '.join(map(str, numbers))}. Reply with only the numbers."
        rows.append(_row(asked, numbers=numbers, max_output_tokens=24))
    return rows


def additions_rows(count: int, seed: int) -> list[Row]:
    """One to three numbers in each row, so that some tasks are within reach at first."""
    example = [
        {"role": "user", "content": "Add 4 to the counter."},
        {"role": "assistant", "content": '<tool_call>\n{"name": "add", "arguments": {"number": 4}}\n</tool_call>'},
        {"role": "user", "content": "Good. Now the next task."},
    ]
    rows = []
    for numbers in _different(count, seed, lambda draw: draw.sample(range(1, 100), draw.choice([1, 1, 2, 2, 3]))):
        asked = f"Add {' and then '.join(map(str, numbers))} to the counter, with one call for each number."
        rows.append(_row([*example, {"role": "user", "content": asked}], numbers=numbers, max_output_tokens=40))
    return rows


def _row(asked: Any, *, max_output_tokens: int, **fields: Any) -> Row:
    return {"responses_create_params": {"input": asked, "max_output_tokens": max_output_tokens}, **fields}


def _different(count: int, seed: int, draw: Callable[[random.Random], list[int]]) -> list[list[int]]:
    """Different lists of numbers, so that no held-out task was trained on."""
    source, drawn = random.Random(seed), dict[tuple[int, ...], None]()
    for _ in range(100 * count):
        drawn[tuple(draw(source))] = None
        if len(drawn) == count:
            break
    return [list(numbers) for numbers in drawn]


#: For each name: the environment, its rows, and the settings of a collection.
ENVIRONMENTS: dict[str, tuple[type[Resources] | str, Callable[[int, int], list[Row]], dict[str, Any]]] = {
    "find_digit": (FindDigit, find_digit_rows, {}),
    "sort_numbers": (SortNumbers, sort_numbers_rows, {}),
    "additions": (Additions, additions_rows, {"agent.max_steps": 4}),
    "text_to_sql": ("text_to_sql", sql_rows, {}),
}

"""`ludus data validate`: check every row against its environment, and warn of rows that are valid but look wrong.

The checks are those of a collection before it starts, but `validate` counts all bad rows and lists the first hundred
problems. Memory does not grow with the file.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ludus.data.row_checks import BadRow, Problem, checked_task, writable_row
from ludus.data.row_environments import EnvironmentSpec, RowEnvironments
from ludus.data.row_typos import RowTypos
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.record import GOLD_FIELDS, OPTION_FIELDS, Row
from ludus.task import Task
from ludus_data.inputs import Inputs, Tick, file_and_line
from ludus_data.row_text import prompt_text

#: How many problems are listed; the others are only counted.
SHOWN = 100

#: Shorter answers, and shorter numbers, stand in many prompts by chance.
_SHORTEST_ANSWER, _SHORTEST_NUMBER = 4, 6


@dataclass
class RowWarning:
    """A likely mistake in a valid row: the first row that has it, and the number of rows."""

    kind: str  # gold_missing or answer_in_prompt
    environment: str
    where: str
    message: str
    rows: int = 0


@dataclass
class ValidationReport:
    """The result of a validation. `problems` are the first; `problem_count` counts all."""

    files: list[str]
    rows: int = 0
    bad_rows: int = 0
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    typos: list[str] = field(default_factory=list)
    warnings: list[RowWarning] = field(default_factory=list)
    environments: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """All fields, where each problem has its file and its line."""
        problems = []
        for problem in self.problems:
            file, line = file_and_line(problem.where)
            problems.append(
                {"file": file, "line": line, "field": problem.field, "reason": problem.reason, "hint": problem.hint}
            )
        return {**asdict(self), "problems": problems}

    def add(self, bad: BadRow) -> None:
        """Count a bad row and keep its problems while there is room."""
        self.bad_rows += 1
        self.problem_count += len(bad.problems)
        self.problems += bad.problems[: SHOWN - len(self.problems)]


def validate(
    files: Sequence[str | Path], environments: Sequence[EnvironmentSpec] = (), tick: Tick = lambda _: None
) -> ValidationReport:
    """Check every row of the files, or of the environments' own datasets if no file is named.

        report = validate(["train.jsonl"], ["math_with_judge"])

    A row's environment is the one in its `agent_ref`, else the only one of `environments`.
    """
    chosen = RowEnvironments(list(environments), {})
    inputs = Inputs(list(files) or _own_files(chosen), tick)
    report = ValidationReport([str(path) for path in inputs.paths])
    typos, doubts, counts = RowTypos(), _Doubts(), Counter[str]()
    for where, line in inputs.lines():
        report.rows += 1
        try:
            row = writable_row(where, line)
            task = checked_task(where, row, chosen.task)
            environment = chosen.of_row(row)
            _check_schema(where, environment, row)
        except BadRow as bad:
            report.add(bad)
            continue
        name = environment.name
        counts[name] += 1
        typos.look(where, task.responses_create_params)
        doubts.look(where, name, row, task)
    report.typos, report.warnings, report.environments = typos.warnings(), doubts.warnings(), dict(counts)
    return report


def _check_schema(where: str, environment: Environment, row: Row) -> None:
    """Raise `BadRow` for what the environment's own schema of rows refuses."""
    problems = environment.resources.row_problems(environment.config, row)
    if problems:
        raise BadRow([Problem(where, field, f"{field}: {reason}", "") for field, reason in problems])


def _own_files(chosen: RowEnvironments) -> list[str | Path]:
    own = (environment.file_of(dataset) for environment in chosen.named for dataset in environment.datasets)
    files = [file for file in own if file is not None]
    if not files:
        raise UserError("no file of rows is named", "Example: ludus data validate train.jsonl --env mcqa")
    return files


class _Doubts:
    """Counts rows without a right answer, and rows whose right answer stands in the prompt."""

    def __init__(self) -> None:
        self._warnings: dict[tuple[str, str], RowWarning] = {}

    def look(self, where: str, environment: str, row: Row, task: Task) -> None:
        """Look at one good row."""
        declared = _declared_gold(type(task))
        if declared and all(_is_empty(getattr(task, name, None)) for name in declared):
            names = " and ".join(declared)
            self._add("gold_missing", environment, where, f"{names} {'is' if len(declared) == 1 else 'are'} empty")
        if any(row.get(name) for name in OPTION_FIELDS):
            return  # the right option stands among the others
        answers = {name: row.get(name) for name in dict.fromkeys((*declared, *GOLD_FIELDS))}
        for name, answer in answers.items():
            if isinstance(answer, str) and _can_be_found(answer) and _stands_in(answer.strip(), prompt_text(row)):
                self._add("answer_in_prompt", environment, where, f"{name} is in the prompt: {answer.strip()!r:.60}")
                return

    def warnings(self) -> list[RowWarning]:
        return list(self._warnings.values())

    def _add(self, kind: str, environment: str, where: str, message: str) -> None:
        warning = self._warnings.get((kind, environment))
        if warning is None:
            warning = self._warnings[kind, environment] = RowWarning(kind, environment, where, message)
        warning.rows += 1


@functools.cache
def _declared_gold(task: type[Task]) -> tuple[str, ...]:
    """The fields of a `Task` that hold the right answer."""
    return tuple(name for name in task.model_fields if name in GOLD_FIELDS or name.startswith("expected_"))


def _is_empty(value: Any) -> bool:
    return (
        value is None
        or (isinstance(value, (list, dict)) and not value)
        or (isinstance(value, str) and not value.strip())
    )


def _can_be_found(answer: str) -> bool:
    answer = answer.strip()
    shortest = _SHORTEST_ANSWER if any(letter.isalpha() for letter in answer) else _SHORTEST_NUMBER
    return len(answer) >= shortest


def _stands_in(answer: str, prompt: str) -> bool:
    """Whether the answer stands in the prompt as whole words, in upper or lower case."""
    answer, prompt = answer.lower(), prompt.lower()
    start = prompt.find(answer)
    while start >= 0:
        end = start + len(answer)
        joined_before = start > 0 and prompt[start - 1].isalnum() and answer[0].isalnum()
        joined_after = prompt[end : end + 1].isalnum() and answer[-1].isalnum()
        if not joined_before and not joined_after:
            return True
        start = prompt.find(answer, end)
    return False

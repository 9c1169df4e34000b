"""The shipped tables and rows are the generator's output, and every generated task can be solved."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus import Environment, Request, ScriptedModel, UserError
from ludus.environments.workplace_assistant.families import FAMILIES
from ludus.environments.workplace_assistant.generate import stream, write
from ludus.environments.workplace_assistant.generate_tables import files
from ludus.response import texts_of
from ludus.testing import shared_path

NAME = "workplace_assistant"
DATA = Path(__file__).parent / "data"


def question_of(row: dict[str, Any]) -> str:
    return str(row["responses_create_params"]["input"][-1]["content"])


def solve(rows: list[dict[str, Any]], **options: Any) -> list[float | None]:
    """The rewards of a model that takes the rows' actions."""
    answers = {question_of(row): row["ground_truth"] for row in rows}

    def oracle(request: Request) -> Any:
        if request.turn:
            return "Done."
        return {"calls": answers[texts_of(request.input[1])]}

    return [rollout.reward for rollout in ludus.collect(NAME, model=ScriptedModel(oracle), **options).rollouts]


def test_the_shipped_files_are_the_output_of_the_generator(tmp_path: Path) -> None:
    write(tmp_path)
    names = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.*")}
    assert names == {path.relative_to(DATA) for path in DATA.rglob("*.*")}
    assert [name for name in names if (tmp_path / name).read_bytes() != (DATA / name).read_bytes()] == []


def test_another_seed_gives_other_tables() -> None:
    first, other = files(0), files(1)
    assert [name for name in first if first[name] == other[name]] == ["email_addresses.csv"]


def test_the_shipped_rows_can_be_solved() -> None:
    rows = [json.loads(line) for line in Environment.load(NAME).dataset().read_text().splitlines()]
    assert len({question_of(row) for row in rows}) == len(rows) >= len(FAMILIES)
    assert solve(rows) == [1.0] * len(rows)


def test_the_stream_is_deterministic_and_its_tasks_can_be_solved() -> None:
    rows = list(itertools.islice(stream(7), 150))
    assert rows == list(itertools.islice(stream(7), 150))
    assert rows[:20] != list(itertools.islice(stream(8), 20))
    assert {len(row["ground_truth"]) for row in rows} == {1, 2, 3, 4, 5}
    assert solve(rows, input=rows) == [1.0] * len(rows)


def test_the_dataset_stream_can_be_limited_to_a_category() -> None:
    rows = list(itertools.islice(stream(0, category="calendar"), 12))
    assert {row["category"] for row in rows} == {"workplace_assistant_calendar"}
    assert solve(rows, dataset="stream", limit=12, settings={"data.category": "calendar"}) == [1.0] * 12
    with pytest.raises(UserError, match="there is no category calender"):
        stream(0, category="calender")


def test_tasks_can_be_generated_from_the_public_tables() -> None:
    folder = str(shared_path("data", NAME))
    rows = list(itertools.islice(stream(0, tables=folder), 60))
    assert solve(rows, input=rows, settings={"resources.tables": folder}) == [1.0] * len(rows)

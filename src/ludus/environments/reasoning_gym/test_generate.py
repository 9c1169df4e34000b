"""The stream of puzzles: deterministic, without repeated questions, and mixed by weight."""

from __future__ import annotations

import os
from collections import Counter
from importlib.util import find_spec
from itertools import islice
from typing import Any

import pytest

from ludus import UserError
from ludus.environments.reasoning_gym.generate import INSTRUCTION, stream
from ludus.environments.reasoning_gym.resources import ReasoningGym

pytestmark = pytest.mark.skipif(
    find_spec("reasoning_gym") is None, reason="needs reasoning-gym: pip install 'ludus-gym[reasoning]'"
)

#: Families that depend on the order of sets, or on the global random numbers.
PROCESS_DEPENDENT = ["isomorphic_strings", "list_functions", "polynomial_multiplication", "ransom_note", "word_ladder"]


def drawn(count: int, seed: int = 1, **settings: Any) -> list[dict[str, Any]]:
    rows = stream(seed, **settings)
    try:
        return list(islice(rows, count))
    finally:
        rows.close()  # type: ignore[attr-defined]


def drawn_here(count: int, families: Any, seed: int = 1) -> list[dict[str, Any]]:
    """The same rows, drawn in this process, which is quicker."""
    from ludus.environments.reasoning_gym.draws import rows

    return list(islice(rows(seed, families, ""), count))


def family(row: dict[str, Any]) -> str:
    return str(row["metadata"]["source_dataset"])


#: The families of the stream that tests share. The last is the same in every process, and hardly repeats a question.
STREAMED = [*PROCESS_DEPENDENT, "number_sorting"]


@pytest.fixture(scope="module")
def first() -> list[dict[str, Any]]:
    """The first rows of a stream."""
    return drawn(40, seed=2, families=STREAMED)


def test_the_same_seed_gives_the_same_rows_in_any_process(
    first: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "PYTHONHASHSEED", "5")
    assert drawn(30, seed=2, families=STREAMED) == first[:30]


def test_another_seed_gives_other_questions(first: list[dict[str, Any]]) -> None:
    streamed = {row["question"] for row in first if family(row) == "number_sorting"}
    one, two = ({row["question"] for row in drawn_here(40, "number_sorting", seed)} for seed in (1, 2))
    assert streamed
    assert streamed <= two
    assert not one & two


def test_no_question_occurs_twice_and_a_small_family_ends() -> None:
    rows = drawn_here(10_000, "tower_of_hanoi")
    assert 20 < len(rows) < 1000
    assert len({row["question"] for row in rows}) == len(rows)


def test_families_are_mixed_by_weight() -> None:
    counts = Counter(map(family, drawn_here(400, {"gcd": 1, "chain_sum": {"weight": 3}})))
    assert counts.keys() == {"gcd", "chain_sum"}
    assert 60 < counts["gcd"] < 140
    assert {family(row) for row in drawn_here(40, ["probability", "gcd"])} == {"coin_flip", "gcd"}


def test_a_row_is_made_with_the_familys_settings_and_holds_them() -> None:
    config = {"min_terms": 2, "max_terms": 2}
    rows = drawn_here(20, {"chain_sum": {"config": config}})
    assert all(row["metadata"]["num_terms"] == 2 and row["config"] == config for row in rows)


def test_a_row_is_a_valid_task_and_asks_for_tags(first: list[dict[str, Any]]) -> None:
    row = first[0]
    task = ReasoningGym.Task.model_validate(row)
    assert task.family == family(row)
    assert task.family in STREAMED
    assert task.input[0]["content"] == f"{task.question}\n\n{INSTRUCTION}"
    assert "config" not in row
    plain = drawn_here(1, "gcd")[0]
    assert plain["responses_create_params"]["input"][0]["content"] == plain["question"]


def test_all_means_every_family_that_runs_no_programs() -> None:
    from ludus.environments.reasoning_gym.draws import sources

    names = {source.name for source in sources("all")}
    assert len(names) > 100
    assert not names & {"codeio", "composite"}
    assert [source.name for source in sources("codeio")] == ["codeio"]


@pytest.mark.parametrize(
    ("families", "says"),
    [
        ("gdc", "there is no family gdc. Did you mean gcd?"),
        ([], "families names no family"),
        (5, "families=5 must be a name"),
        ({"gcd": 0}, "families.gcd: weight=0 must be a number above 0"),
        ({"gcd": {"wieght": 1}}, "families.gcd has no setting wieght"),
        ({"gcd": {"config": {"max_valu": 1}}}, "families.gcd has no setting max_valu. Did you mean max_value?"),
        ({"gcd": {"config": {"seed": 1}}}, "families.gcd has no setting seed"),
        ({"gcd": {"config": {"max_value": -1}}}, "families.gcd: AssertionError: max_value must be"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_the_setting(families: Any, says: str) -> None:
    from ludus.environments.reasoning_gym.draws import sources

    with pytest.raises(UserError, match=says):
        sources(families)


def test_an_error_in_the_drawing_process_is_raised_by_the_stream() -> None:
    with pytest.raises(UserError, match="there is no family gdc. Did you mean gcd?"):
        drawn(1, families="gdc")

"""Generated puzzles: extracting the answer, scoring it with the library, and defence against hostile answers."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import ludus
from ludus import Failure, Outcome, Request, Response, ScriptedModel, UserError, Verdict
from ludus.environments.reasoning_gym.extraction import final_answer
from ludus.environments.reasoning_gym.resources import ReasoningGym, require_library
from ludus.response import message, reasoning, texts_of
from ludus.runtime.processes import shared_pool
from ludus.testing import disagreements, judge, shared_rows

LIBRARY = find_spec("reasoning_gym")
needs_library = pytest.mark.skipif(LIBRARY is None, reason="needs reasoning-gym: pip install 'ludus-gym[reasoning]'")
pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "reasoning_gym"
ROW: dict[str, Any] = {
    "responses_create_params": {"input": "What is 12 + 30?"},
    "question": "What is 12 + 30?",
    "answer": "42",
    "metadata": {"source_dataset": "chain_sum"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def _warm() -> AsyncIterator[None]:
    """One process pool for all of these tests, so that its children import the library only once."""
    async with shared_pool():
        yield


def row(
    family: str, answer: str | None = "42", config: dict[str, Any] | None = None, **metadata: Any
) -> dict[str, Any]:
    return {**ROW, "answer": answer, "metadata": {"source_dataset": family, **metadata}, "config": config or {}}


async def scored(text: str | Response, puzzle: dict[str, Any] = ROW, **settings: Any) -> Verdict:
    verdict = await judge(NAME, puzzle, text, **settings)
    assert isinstance(verdict, Verdict), verdict
    return verdict


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>4</answer>", "4"),
        ("<answer> 4\n</answer>", "4"),
        ("<answer>3</answer>, no: <answer>4</answer>", "4"),
        (r"<answer>4</answer> \boxed{5}", "4"),
        (r"\boxed{4} or \boxed{5}", "4"),
        (r"\boxed{} \boxed{4}", "4"),
        ("\\boxed{1 2\n3 4}", "1 2\n3 4"),
        ("<answer></answer>", ""),
        (" 4 \n", "4"),
        ("<answer>4", "<answer>4"),
        (r"\boxed{4", r"\boxed{4"),
        ("", ""),
    ],
)
async def test_the_answer_is_the_last_tag_else_the_first_box_else_the_whole_text(text: str, answer: str) -> None:
    assert final_answer(text) == final_answer(text, compat=True) == answer


async def test_a_box_ends_at_its_matching_brace_except_in_compat() -> None:
    assert final_answer(r'\boxed{{"a": {"b": 1}}}.') == '{"a": {"b": 1}}'
    assert final_answer(r'\boxed{{"a": {"b": 1}}}.', compat=True) == '{"a": {"b": 1'
    assert final_answer(r"\boxed{\frac{1}{2}") == r"\frac{1"


async def test_a_tag_that_is_only_mentioned_does_not_begin_the_answer_except_in_compat() -> None:
    text = "I shall use <answer> as told. <answer>4</answer>"
    assert final_answer(text) == "4"
    assert final_answer(text, compat=True) == "as told. <answer>4"


@pytest.mark.usefixtures("processor_limit")
async def test_extraction_from_a_long_hostile_text_takes_linear_time() -> None:
    for hostile in ("<answer>", "</answer>", "\\boxed{", "\\boxed{}", "\\boxed{ {", "}", "<answer></answer>"):
        for compat in (False, True):
            final_answer(hostile * 300_000, compat)


@needs_library
async def test_a_right_answer_earns_1_and_a_wrong_answer_earns_0() -> None:
    verdict = await scored("Hm. <answer>42</answer>")
    assert verdict.reward == 1.0
    assert verdict.values == {"task_name": "chain_sum", "score": 1.0, "extracted_answer": "42", "out_of_time": False}
    assert (await scored("<answer>41</answer>")).reward == 0.0
    assert (await scored("It is 42.")).reward == pytest.approx(2 / 9)


@needs_library
async def test_only_the_text_of_messages_counts() -> None:
    assert (await scored(Response.of(reasoning("<answer>42</answer>"), message("no")))).reward == 0.0
    assert (await scored(Response.of(message("<answer>4"), message("2</answer>")))).reward == 1.0
    assert (await scored(Response({}))).reward == 0.0


@needs_library
async def test_an_empty_answer_earns_nothing_except_in_compat() -> None:
    puzzle = row("countdown", "40 + 2", numbers=[40, 2], target=42)
    for nothing in ("", " \n", "<answer></answer>", Response.of(reasoning("40 + 2"))):
        assert (await scored(nothing, puzzle)).reward == 0.0
        assert (await scored(nothing, puzzle, compat=True)).reward == 0.01


@needs_library
async def test_a_blank_answer_is_right_if_the_key_is_blank() -> None:
    assert (await scored("<answer></answer>", row("ab", ""))).reward == 1.0
    assert (await scored("", row("ab", ""))).reward == 0.0
    assert (await scored("", row("ab", ""), compat=True)).reward == 1.0


@needs_library
async def test_a_scorer_uses_the_settings_that_the_row_was_made_with_except_in_compat() -> None:
    puzzle = row("decimal_arithmetic", "1.25", {"max_num_decimal_places": 2})
    assert (await scored("<answer>1.255</answer>", puzzle)).reward == 1.0
    assert (await scored("<answer>1.255</answer>", puzzle, compat=True)).reward == 0.0


@needs_library
async def test_an_answer_on_which_the_scorer_raises_earns_nothing() -> None:
    puzzle = row("prime_factorization", "2 \u00d7 3")
    assert (await scored("<answer>two and three</answer>", puzzle)).reward == 0.0
    assert (await scored("<answer>[1]</answer>", row("boxnet", None, initial_state={}))).reward == 0.0


@needs_library
@pytest.mark.parametrize(
    "puzzle",
    [
        row("no_such_family"),
        row("composite"),
        row("gcd", None),
        row("calendar_arithmetic"),
        row("arc_agi", "4 1"),
        row("gcd", config={"colour": "red"}),
    ],
)
async def test_a_row_that_cannot_be_scored_fails_and_is_a_zero_in_compat(puzzle: dict[str, Any]) -> None:
    failure = await judge(NAME, puzzle, "<answer>41</answer>")
    assert isinstance(failure, Failure)
    assert failure.kind == "bad_row"
    assert (await scored("<answer>41</answer>", puzzle, compat=True)).reward == 0.0


@needs_library
@pytest.mark.parametrize(
    "change",
    [{"question": None}, {"answer": 42}, {"metadata": None}, {"metadata": {}}, {"metadata": {"source_dataset": 1}}],
)
async def test_a_bad_row_is_refused(change: dict[str, Any]) -> None:
    failure = await judge(NAME, {**ROW, **change}, "<answer>42</answer>")
    assert isinstance(failure, Failure)
    assert failure.kind == "bad_row"


CODE = "__import__('pathlib').Path({!r}).touch()"
EVALUATED = [
    row("binary_matrix", "1 0"),
    row("n_queens", valid_answers=["Q"]),
    row("spiral_matrix"),
    row("string_insertion"),
    row("countdown", "40 + 2", numbers=[40, 2], target=42),
    row("puzzle24", "6 * 4 * 1 * 1", numbers=[1, 1, 4, 6]),
    row("polynomial_multiplication", "x"),
    row("simple_integration", "x", variable="x", integrand="1"),
    row("intermediate_integration", "x", variable="x", integrand="1"),
]


@needs_library
@pytest.mark.parametrize("puzzle", EVALUATED, ids=lambda puzzle: puzzle["metadata"]["source_dataset"])
async def test_an_answer_is_never_run_as_code(puzzle: dict[str, Any], tmp_path: Path) -> None:
    target = tmp_path / "touched"
    for hostile in (CODE.format(str(target)), f"[{CODE.format(str(target))}]", f"open({str(target)!r}, 'w')"):
        for compat in (False, True):
            assert (await scored(f"<answer>{hostile}</answer>", puzzle, compat=compat)).reward < 0.1
    assert not target.exists()


@needs_library
async def test_the_fields_of_a_row_are_never_run_as_code(tmp_path: Path) -> None:
    target = tmp_path / "touched"
    code = CODE.format(str(target))
    await judge(NAME, row("bitwise_arithmetic", problem=code), "<answer>1</answer>")
    await judge(NAME, row("number_sorting", f"[{code}]", direction="ascending"), "<answer>[1]</answer>")
    await judge(NAME, row("simple_integration", variable="x", integrand=code), "<answer>x</answer>")
    assert not target.exists()


@needs_library
async def test_lists_sums_and_formulas_are_parsed() -> None:
    assert (await scored("<answer>['4', '2']</answer>", row("string_insertion"))).reward == 0.1
    assert (await scored("<answer>[4, 2]</answer>", row("spiral_matrix", "4 2"))).reward == 0.1
    assert (
        await scored("<answer>0x2a</answer>", row("bitwise_arithmetic", problem="((0x5 << 3) + 0x2)"))
    ).reward == 1.0
    puzzle = row("simple_integration", "x**2 + C", variable="x", integrand="2*x")
    assert (await scored("<answer>x**2 + sin(1)**2 + C</answer>", puzzle)).reward == 1.0


def modules_that_run_text() -> set[str]:
    assert LIBRARY is not None
    home = Path((LIBRARY.submodule_search_locations or [""])[0])
    risky = re.compile(r"\b(?:eval|exec|parse_expr|sympify|__import__)\(|\b(?:subprocess|pickle|os\.system)\b")
    sources = {path: path.read_text(encoding="utf-8") for path in home.rglob("*.py")}
    risky_paths = [path for path, text in sources.items() if "def score_answer" in text and risky.search(text)]
    return {".".join(path.relative_to(home).with_suffix("").parts) for path in risky_paths}


@needs_library
async def test_every_module_where_the_library_runs_text_is_known() -> None:
    """If this fails after an upgrade of the library, review how the new module evaluates answers."""
    from ludus.environments.reasoning_gym.evaluation import EVALUATING, READING_FORMULAS

    only_to_generate, parses_by_itself = {"code.codeio"}, {"logic.propositional_logic"}
    known = {*EVALUATING, *READING_FORMULAS} | only_to_generate | parses_by_itself
    assert modules_that_run_text() == known


@needs_library
async def test_an_answer_that_uses_up_its_cpu_time_earns_nothing() -> None:
    puzzle = row("coin_flip", "0.5")
    verdict = await scored("<answer>1e999999999</answer>", puzzle, seconds=0.3)
    assert (verdict.reward, verdict.values["out_of_time"]) == (0.0, True)
    assert (await scored("<answer>1/2</answer>", puzzle)).reward == 1.0


@needs_library
async def test_the_shipped_rows_can_be_solved() -> None:
    path = ludus.Environment.load(NAME).dataset()
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    answers = {texts_of(row["responses_create_params"]["input"][0]): row for row in rows}

    def oracle(request: Request) -> str:
        row = answers[texts_of(request.input[-1])]
        return f"<answer>{row['answer'] or json.dumps(row['metadata']['possible_answer'])}</answer>"

    rollouts = [rollout async for rollout in ludus.stream(NAME, model=ScriptedModel(oracle))]
    assert len(rollouts) >= 5
    assert all((rollout.outcome, rollout.reward) == (Outcome.COMPLETED, 1.0) for rollout in rollouts)


async def test_a_missing_library_is_an_error_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{require_library.__module__}.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"reasoning-gym is not installed. Install it with: pip install .*\[reasoning\]'"
    ):
        require_library()


async def test_public_rows_load() -> None:
    assert [ReasoningGym.Task.model_validate(row) for row in shared_rows(NAME)]


@needs_library
async def test_verdicts_agree_with_the_reference() -> None:
    assert await disagreements(NAME) == []


@needs_library
async def test_compat_agrees_with_the_reference_where_it_is_wrong() -> None:
    assert await disagreements(NAME, compat=True) == []

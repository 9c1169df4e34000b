"""Known errors of the library's scorers: the reward that the library gives, and the corrected reward."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import Any

import pytest
import pytest_asyncio

from ludus import Verdict
from ludus.runtime.processes import shared_pool
from ludus.testing import judge

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        find_spec("reasoning_gym") is None, reason="needs reasoning-gym: pip install 'ludus-gym[reasoning]'"
    ),
]
TIMES = "\u00d7"


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def _warm() -> AsyncIterator[None]:
    async with shared_pool():
        yield


async def rewards(family: str, key: str | None, answer: str, **metadata: Any) -> tuple[float, float]:
    """The corrected reward of an answer, and the library's reward."""
    row = {
        "responses_create_params": {"input": "?"},
        "question": "?",
        "answer": key,
        "metadata": {"source_dataset": family, **metadata},
    }
    both = [await judge("reasoning_gym", row, f"<answer>{answer}</answer>", compat=compat) for compat in (False, True)]
    assert all(isinstance(verdict, Verdict) for verdict in both), both
    ours, theirs = (round(verdict.reward, 4) for verdict in both if isinstance(verdict, Verdict))
    return ours, theirs


@pytest.mark.parametrize(
    ("family", "key", "answer", "theirs"),
    [
        ("chain_sum", "42", "40 41 42 43", 0.1818),
        ("gcd", "7", "7 or 8", 0.1667),
        ("gcd", "7", "1,2,3,4,5,6 7", 0.0769),
        ("ransom_note", "True", "True or False", 0.3077),
        ("syllogism", "No", "Yes? No?", 0.25),
        ("rotate_matrix", "1 2\n3 4", "1 2\n3 4\n4 3\n2 1", 0.4667),
        ("gsm_symbolic", "42", "42 or 1 or 2 or 3", 1.0),
        ("gsm_symbolic", "42", "42, 43, 44", 1.0),
        ("gsm_symbolic", "42", "-42", 1.0),
    ],
)
async def test_several_guesses_earn_nothing_except_in_compat(family: str, key: str, answer: str, theirs: float) -> None:
    assert await rewards(family, key, answer) == (0.0, theirs)


@pytest.mark.parametrize(
    ("family", "key", "answer", "theirs"),
    [
        ("game_of_life_halting", "True", "not True", 1.0),
        ("game_of_life_halting", "True", "It isn't True", 1.0),
        ("gsm_symbolic", "42", "not 42", 1.0),
        ("ransom_note", "True", "not True", 0.5),
        ("chain_sum", "42", "anything but 42", 0.1333),
    ],
)
async def test_a_denied_answer_earns_nothing_except_in_compat(
    family: str, key: str, answer: str, theirs: float
) -> None:
    assert await rewards(family, key, answer) == (0.0, theirs)


async def test_words_that_the_key_has_too_deny_nothing() -> None:
    assert await rewards("caesar_cipher", "DO NOT GO OR STAY", "DO NOT GO OR STAY") == (1.0, 1.0)
    assert await rewards("gsm_symbolic", "42", "42 apples") == (1.0, 1.0)


@pytest.mark.parametrize(
    ("family", "key", "answer", "reward"),
    [("chain_sum", "42", "It is 42.", 0.2222), ("ransom_note", "True", "True, I think", 0.3077)],
)
async def test_one_guess_with_words_around_it_earns_its_share_of_the_text(
    family: str, key: str, answer: str, reward: float
) -> None:
    assert await rewards(family, key, answer) == (reward, reward)


async def test_a_right_board_is_accepted_in_a_row_read_from_json_except_in_compat() -> None:
    for family in ("arc_agi", "rearc"):
        assert await rewards(family, "1 2\n3 4", "1 2\n3 4", output=[[1, 2], [3, 4]]) == (1.0, 0.05)
        assert await rewards(family, "1 2\n3 4", "1 2\n3 5", output=[[1, 2], [3, 4]]) == (0.05, 0.05)


async def test_a_wrong_answer_to_a_negative_key_earns_little_except_in_compat() -> None:
    metadata = {"task": "recurring_event_day"}
    assert await rewards("calendar_arithmetic", "-1", "-1", **metadata) == (1.0, 1.0)
    ours, theirs = await rewards("calendar_arithmetic", "-1", "5", **metadata)
    assert ours == 0.0
    assert theirs > 1e12
    assert await rewards("calendar_arithmetic", "10", "11", **metadata) == (0.6065, 0.6065)


@pytest.mark.parametrize(
    ("answer", "ours", "theirs"),
    [("0", 0.1429, 1.0), ("0.1", 0.4286, 1.0), ("0.15625", 1.0, 1.0), ("5/32", 1.0, 1.0), ("0.1562", 1.0, 1.0)],
)
async def test_a_probability_with_missing_digits_is_not_right_except_in_compat(
    answer: str, ours: float, theirs: float
) -> None:
    assert await rewards("coin_flip", "0.15625", answer) == (ours, theirs)


async def test_nan_is_not_a_right_answer_except_in_compat() -> None:
    for answer in ("nan", "N a N", "nan+nani"):
        assert await rewards("complex_arithmetic", "1.0 + 2.0i", answer, result=[1.0, 2.0]) == (0.0, 1.0)
    for answer in ("[NaN, NaN]", r'["\u006ean", "nan"]'):
        assert await rewards("number_sorting", "['1', '2']", answer, direction="ascending") == (0.0, 1.0)
    assert await rewards("number_sorting", "['1', '2']", "[1, 2]", direction="ascending") == (1.0, 1.0)


async def test_game_of_life_halting_does_not_accept_any_text_except_in_compat() -> None:
    for answer in ("False", "maybe", "True or False", "0"):
        assert await rewards("game_of_life_halting", "True", answer) == (0.0, 1.0)
    for answer in ("True", "true", "It is True."):
        assert await rewards("game_of_life_halting", "True", answer) == (1.0, 1.0)


async def test_an_expression_uses_only_the_numbers_of_the_puzzle_except_in_compat() -> None:
    numbers = [2, 3, 4, 5]
    for answer in ("6 * 4 * 1 * 1", "24e0 + 0e0 * (2 + 3 + 4 + 5)", "2 * 3 * 4 + 1/5 + 0", "(5 + 3) * 4 - 4 * 2"):
        assert (await rewards("puzzle24", None, answer, numbers=numbers))[0] == 0.01
    assert await rewards("puzzle24", None, "6 * 4 * 1 * 1", numbers=numbers) == (0.01, 1.0)
    assert await rewards("puzzle24", None, "5 * 5 - 1/5 - 0/5", numbers=[1, 5, 5, 5]) == (0.01, 0.01)
    assert await rewards("puzzle24", None, "2 * (3 + 4 + 5)", numbers=numbers) == (1.0, 1.0)
    target = {"numbers": [2, 3], "target": 1000}
    assert await rewards("countdown", None, "1e3 + 0e0 * (2 + 3)", **target) == (0.05, 1.0)
    assert await rewards("countdown", None, "2 ** 3", numbers=[2, 3], target=8) == (0.05, 1.0)
    assert await rewards("countdown", None, "2 * 3", numbers=[2, 3], target=6) == (1.0, 1.0)


async def test_a_formula_that_makes_sympy_compute_the_result_earns_nothing_except_in_compat() -> None:
    metadata = {"variable": "x", "integrand": "2*x"}
    for family in ("simple_integration", "intermediate_integration"):
        for answer in ("integrate(2*x, x)", "Integral(2*x, x) + C", "x**2 or x**3"):
            assert await rewards(family, "x**2 + C", answer, **metadata) == (0.0, 1.0)
        assert await rewards(family, "x**2 + C", "x**2 + log(2) + C", **metadata) == (1.0, 1.0)
    assert await rewards("intermediate_integration", "Integral(2*x, x)", "Integral(2*x, x)", **metadata) == (1.0, 1.0)
    product = {"variables": ["x"]}
    assert await rewards("polynomial_multiplication", "x**2 - 1", "expand((x - 1)*(x + 1))", **product) == (0.0, 1.0)
    assert await rewards("polynomial_multiplication", "x**2 - 1", "x**2 - 1", **product) == (1.0, 1.0)


async def test_a_negated_role_earns_nothing_except_in_compat() -> None:
    key = "Ann is a knight, and Bob is a knave."
    for answer in (f"It is not so that {key}", f"anything but {key}", f"{key} Or not."):
        assert await rewards("knights_knaves", key, answer) == (0.0, 1.0)
    assert await rewards("knights_knaves", key, "Bob is a knave, and Ann is a knight") == (1.0, 1.0)
    assert await rewards("knights_knaves", key, "Ann is a knight, and Bob is a knight") == (0.65, 0.65)


async def test_extra_words_lower_the_reward_except_in_compat() -> None:
    assert await rewards("letter_jumble", "a red door", "a red door and so, I think") == (0.4286, 1.0)
    assert await rewards("letter_jumble", "a red door", "A red door") == (1.0, 1.0)
    words = {"sorted_words": ["ant", "bee"]}
    assert await rewards("word_sorting", "ant, bee", "ant, bee, cow, dog", **words) == (0.5, 1.0)
    assert await rewards("word_sorting", "ant, bee", "ant, bee", **words) == (1.0, 1.0)


async def test_a_number_is_not_its_own_factorisation_except_in_compat() -> None:
    key = f"2 {TIMES} 2 {TIMES} 3"
    for answer in ("12", f"1 {TIMES} 12", f"-1 {TIMES} -2 {TIMES} 6"):
        assert await rewards("prime_factorization", key, answer) == (0.01, 0.5)
    assert await rewards("prime_factorization", key, f"3 {TIMES} 4") == (0.5, 0.5)
    assert await rewards("prime_factorization", key, key) == (1.0, 1.0)

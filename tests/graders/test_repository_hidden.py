"""Expected values are taken out of tests, and compared outside."""

from __future__ import annotations

from typing import Any

import pytest

from ludus.graders.repository.hidden import HiddenTests

NAMES = ("_m", "_check", "_raises")


def hidden(body: str) -> HiddenTests:
    return HiddenTests({"t.py": f"from __future__ import annotations\nimport pytest\n{body}"}, NAMES)


@pytest.mark.parametrize(
    ("assertion", "right", "wrong"),
    [
        ("f(1) == 'secret'", "secret", "other"),
        ("'secret' == f(1)", "secret", None),
        ("f(1) != ['secret']", ["x"], ["secret"]),
        ("f(1) < 100.5", 100, 101),
        ("100.5 < f(1)", 101, 100),
        ("f(1) is None", None, 0),
        ("f(1) is not None", 0, None),
        ("f(1) in ('secret', 'x')", "x", "y"),
        ("'secret' in f(1)", "a secret", "none"),
        ("f(1) == {'secret': {1, 2}}", {"secret": {2, 1}}, {"secret": {1}}),
        ("f(1) == pytest.approx(0.3)", 0.1 + 0.2, 0.31),
        ("f(1) == pytest.approx([1.0, 2], abs=0.5)", [1.4, 2.5], [1.4, 2.6]),
    ],
)
def test_an_expected_value_leaves_the_test_and_is_compared_outside(assertion: str, right: Any, wrong: Any):
    found = hidden(f"def test_a():\n    assert {assertion}\n")
    assert "_check(0, f(1)" in found.sources["t.py"]
    assert "secret" not in found.sources["t.py"]
    assert found.missed("t.py::test_a", {0: [right]}) is None
    assert found.missed("t.py::test_a", {0: [right, wrong]}) == "an assertion does not hold"
    assert found.missed("t.py::test_a", {}) == "an assertion was not reached"


def test_the_exception_of_a_raises_block_is_compared_outside():
    found = hidden(
        "class TestA:\n    def test_b(self):\n        with pytest.raises((KeyError, x.Mine)):\n            f()\n"
    )
    assert "with _raises(0):" in found.sources["t.py"]
    assert "KeyError" not in found.sources["t.py"]
    assert found.missed("t.py::TestA::test_b", {0: [["Mine", "ValueError", "object"]]}) is None
    assert found.missed("t.py::TestA::test_b[1]", {0: [["ValueError"]]}) == "an assertion does not hold"


def test_other_assertions_stay_and_report_that_they_held_and_helpers_stay_as_they_are():
    text = "def helper(x):\n    assert x == 1\n\ndef test_a():\n    assert f() == g()\n    {}assert f()\n    {}"
    found = hidden(text.format("", ""))
    assert text.format("_check(0, True)\n    ", "_check(1, True)") in found.sources["t.py"]
    assert found.missed("t.py::test_a", {0: [True], 1: [True]}) is None
    assert found.missed("t.py::test_a", {0: [True]}) == "an assertion was not reached"


def test_a_value_of_another_type_does_not_hold_and_does_not_crash():
    found = hidden("def test_a():\n    assert f() < 3\n    assert 'a' in f()\n")
    assert found.missed("t.py::test_a", {0: [None], 1: [3]}) == "an assertion does not hold"


@pytest.mark.parametrize(
    "body",
    [
        "    if f(0):\n        assert f() == 1\n",
        "    for each in f(0):\n        assert f() == 1\n",
        "    while f(0):\n        assert f() == 1\n",
        "    try:\n        f(0)\n    except KeyError:\n        assert f() == 1\n",
        "    if f(0):\n        return\n    assert f() == 1\n",
        "    with pytest.raises(f(0)):\n        assert f() == 1\n",
        "    for each in (1, 2):\n        if each == f(0):\n            continue\n        assert f() == 1\n",
    ],
)
def test_an_assertion_that_may_be_passed_by_need_not_be_reached(body: str):
    found = hidden(f"def test_a():\n    assert f() == 0\n{body}")
    assert found.missed("t.py::test_a", {0: [0]}) is None
    assert found.missed("t.py::test_a", {0: [0], 1: [2]}) == "an assertion does not hold"
    assert found.missed("t.py::test_a", {1: [1]}) == "an assertion was not reached"


@pytest.mark.parametrize(
    ("block", "times"),
    [("for each in (1, 2)", 2), ("for each in range(3)", 3), ("with f(0)", 1), ("for x in [f(0)]", 1)],
)
def test_an_assertion_in_a_block_that_always_runs_must_be_reached_in_every_round(block: str, times: int):
    found = hidden(f"def test_a():\n    assert f() == 0\n    {block}:\n        assert f(1) == 1\n")
    assert found.missed("t.py::test_a", {0: [0]}) == "an assertion was not reached"
    assert found.missed("t.py::test_a", {0: [0], 1: [1] * (times - 1)}) == "an assertion was not reached"
    assert found.missed("t.py::test_a", {0: [0], 1: [1] * times}) is None


@pytest.mark.parametrize(
    "body",
    [
        "    @f\n    def inner(x):\n        return x\n",
        "    async def inner(x):\n        return x\n",
        "    class Inner:\n        def method(self):\n            return 1\n",
        "    for each in (1, 2):\n        for x in f(each):\n            break\n",
    ],
)
def test_what_an_inner_function_or_loop_leaves_makes_no_assertion_of_the_test_optional(body: str):
    found = hidden(f"def test_a():\n{body}    assert f() == 1\n")
    assert found.missed("t.py::test_a", {}) == "an assertion was not reached"
    in_loop = hidden(
        f"def test_a():\n    for y in (1, 2):\n{body.replace('    ', '        ')}        assert f() == 1\n"
    )
    assert in_loop.missed("t.py::test_a", {0: [1]}) == "an assertion was not reached"


def test_a_value_that_a_test_of_another_name_reports_must_hold_too():
    found = hidden("class TestA:\n    def test_a(self):\n        assert f() == 0\n\nclass TestB(TestA):\n    pass\n")
    assert found.missed("t.py::TestB::test_a", {0: [1]}) == "an assertion does not hold"

"""Spreadsheet formulas: right values, and one kind of error for everything else."""

from __future__ import annotations

import math
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.cookbook.spreadsheet.formulas import MAX_DEPTH, FormulaError, FormulaSheet

CELLS = {"A1": "2", "A2": " 3 ", "A3": "-1.5", "B1": "=A1+A2", "B2": "=B1*B1-(A3+1)/-2"}


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("=A1", 2),
        ("=B1", 5),
        ("=B2", 24.75),
        ("=1+2*3", 7),
        ("=-(A1)", -2),
        ("=SUM(A1:A3)", 3.5),
        ("=SUM(A3:A1)", 3.5),
        ("=SUM(A1:B2)*2", 69.5),
        ("=MAX(A1:A3) - MIN(A1:A3)", 4.5),
        ("=AVERAGE(A1:A2, 7)", 4),
        ("=COUNT(A1:A99)", 3),
        ("=Z99", 0),
        ("1e3", 1000),
        ("=" + "(" * 99 + "1" + ")" * 99, 1),
    ],
)
def test_a_formula_has_its_value(formula: str, value: float):
    assert FormulaSheet({**CELLS, "C1": formula}).value("C1") == pytest.approx(value)


@pytest.mark.parametrize(
    "formula",
    [
        *("=", "=)", "=A1 A2", "=1/0", "=C1", "=C1+1", "=SUM()", "=AVERAGE(D1:D9)", "=MIN(D1:D9)", "=NOPE(A1)", "=SUM"),
        *("=a1", "=AA1", "=A100", "=A0", "=1J", "=9**9", "=1//2", "=A1:A2", '="text"', "=(A1,A2)", "=SUM(A1:A2:A3)"),
        *("text", "", "nan", "inf", "=1e9", "=9" + "*9" * 200, "=__import__('os')"),
        *("=\n1", "=1\x00", "=1E999", "=\uff11"),
    ],
)
def test_what_has_no_value_is_one_kind_of_error(formula: str):
    with pytest.raises(FormulaError):
        FormulaSheet({**CELLS, "C1": formula}).value("C1")


def test_two_cells_that_need_each_other_have_no_value_and_others_keep_theirs():
    sheet = FormulaSheet({"A1": "=A2", "A2": "=A1", "A3": "5"})
    for cell in ("A1", "A2", "a cell"):
        with pytest.raises(FormulaError):
            sheet.value(cell)
    assert sheet.value("A3") == 5


def test_a_chain_of_doublings_is_computed_once_for_each_cell():
    cells = {f"A{n}": f"=A{n + 1}+A{n + 1}" for n in range(1, MAX_DEPTH)} | {f"A{MAX_DEPTH}": "1"}
    assert FormulaSheet(cells).value("A1") == 2 ** (MAX_DEPTH - 1)
    with pytest.raises(FormulaError, match="chain"):
        FormulaSheet({f"{c}{n}": f"={c}{n + 1}" for c in "A" for n in range(1, 99)}).value("A1")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_functions_agree_with_python(numbers: list[float]):
    cells = {f"A{place}": repr(number) for place, number in enumerate(numbers, start=1)}
    for name, function in {"SUM": math.fsum, "MIN": min, "MAX": max, "AVERAGE": fmean, "COUNT": len}.items():
        sheet = FormulaSheet({**cells, "B1": f"={name}(A1:A{len(numbers)})"})
        assert sheet.value("B1") == pytest.approx(function(numbers))


@given(st.text(alphabet="AB19+-*/()., :=SUMJXE'\"\n\\_", max_size=40))
def test_no_text_raises_anything_else(text: str):
    try:
        assert math.isfinite(FormulaSheet({"A1": "1", "C1": f"={text}"}).value("C1"))
    except FormulaError:
        pass

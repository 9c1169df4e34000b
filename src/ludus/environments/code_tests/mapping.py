"""Rows of other datasets as rows of this environment.

HumanEval and EvalPlus rows have a `prompt` of code and a `test` with `check(candidate)`, or inputs (`base_input`,
`plus_input`) whose expected outputs the row's own solution gives. BigCodeBench rows have an `instruct_prompt`, a
`complete_prompt` of code and a `test` with test cases. MBPP rows have a `text` or `prompt` of words and a `test_list`
of asserts. A row that has `responses_create_params` keeps its own prompt, as after `ludus data convert`.
"""

from __future__ import annotations

import ast
import builtins
import re
from typing import Any

_FUNCTION = re.compile(r"^(?:async )?def (\w+)", re.MULTILINE)

_ASK = "Answer with the whole program in one block:\n```python\n# your program\n```"
_COMPLETE = "Complete this Python program.\n\n```python\n{code}\n```\n\n" + _ASK
_WRITE = "{words}\n\nYour function must pass tests such as this one:\n```python\n{example}\n```\n\n" + _ASK

#: The tests of a row that has inputs only: the solution runs beside the tests and gives the expected values.
_INPUTS = """
def check(candidate):
    import copy, math
    names = {{}}
    exec({solution!r}, names)
    def same(found, expected):
        if isinstance(expected, float) and isinstance(found, (int, float)):
            return found == expected or math.isclose(found, expected, rel_tol=1e-9, abs_tol={atol!r}) or (
                math.isnan(expected) and math.isnan(found))
        if isinstance(expected, (list, tuple)) and type(found) is type(expected):
            return len(found) == len(expected) and all(map(same, found, expected))
        return found == expected
    for given in {inputs!r}:
        expected = names[{name!r}](*copy.deepcopy(given))
        assert same(candidate(*copy.deepcopy(given)), expected), given
"""


def mapped(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the fields of this environment."""
    fields = dict(row)
    tests = _list(row, "test_list")
    code = _text(row, "context", "complete_prompt") or ("" if tests else _code(row))
    body, whole = _text(row, "canonical_solution"), _text(row, "solution", "code")
    if not whole and body and _is_whole(body):  # as in EvalPlus's file of MBPP
        whole = body
    preparation = [*_list(row, "test_imports"), _text(row, "test_setup_code")]
    fields["context"] = _with_body(code) if code else "\n".join(map(str, filter(None, preparation)))
    fields["solution"] = whole or (f"{code}{body}" if body else None)
    fields["test_list"] = tests
    fields["entry_point"] = row.get("entry_point") or _called(tests, whole)
    fields["test"] = _text(row, "test") or _from_inputs(row, fields["entry_point"], fields["solution"])
    if "responses_create_params" not in row and (asked := _prompt(row, code, tests)):
        fields["responses_create_params"] = {"input": [{"role": "user", "content": asked}]}
    return fields


def _prompt(row: dict[str, Any], code: str, tests: list[Any]) -> str:
    if instruction := _text(row, "instruct_prompt"):
        return instruction
    if words := _text(row, "text", "prompt") if tests else "":
        return _WRITE.format(words=words, example=tests[0])
    if code:
        return "" if is_signature(code) else _COMPLETE.format(code=code.strip("\n"))
    words = _text(row, "prompt")
    return f"{words.strip()}\n\n{_ASK}" if words else ""


def is_signature(code: Any) -> bool:
    """Whether a text is nothing but the head of a function: it does not say what the function should do."""
    try:
        tree = ast.parse(f"{str(code).rstrip()}\n    ...\n")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    first = tree.body[0] if len(tree.body) == 1 else None
    return isinstance(first, ast.FunctionDef | ast.AsyncFunctionDef) and len(first.body) == 1


def _with_body(code: str) -> str:
    """Code that can run before the program: the head of a function at its end gets a body."""
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        completed = f"{code.rstrip()}\n    ...\n"
        try:
            ast.parse(completed)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return code
        return completed
    return code


def _is_whole(body: str) -> bool:
    """Whether a solution is a program and not the body of a function."""
    return bool(_FUNCTION.search(body)) and not body.lstrip("\n").startswith((" ", "\t"))


def _called(tests: list[Any], whole: str) -> str:
    """The function under test: the solution's last function that the asserts call, or their only function."""
    used = "\n".join(map(str, tests))
    names = [name for name in _FUNCTION.findall(whole) if re.search(rf"\b{name}\(", used)]
    if names or not used:
        return names[-1] if names else ""
    try:
        calls = [node.func for node in ast.walk(ast.parse(used)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    called = {call.id for call in calls if isinstance(call, ast.Name)} - set(vars(builtins))
    return called.pop() if len(called) == 1 else ""


def _from_inputs(row: dict[str, Any], name: Any, solution: str | None) -> str:
    """Tests made of inputs, as EvalPlus publishes them."""
    inputs = [
        arguments
        for field in ("base_input", "plus_input")
        for arguments in _list(row, field)
        if isinstance(arguments, list)
    ]
    if not inputs or not solution or _list(row, "test_list"):
        return ""
    atol = row.get("atol")
    tolerance = float(atol) if isinstance(atol, (int, float)) and atol > 0 else 1e-6
    return _INPUTS.format(solution=solution, inputs=inputs, name=name, atol=tolerance)


def _code(row: dict[str, Any]) -> str:
    """The code to complete: the field `prompt`, or what `ludus data convert` made of it."""
    params = row.get("responses_create_params")
    asked = params.get("input") if isinstance(params, dict) else None
    if isinstance(asked, list) and asked and isinstance(asked[-1], dict):
        asked = asked[-1].get("content")
    text = _text(row, "prompt") or (asked if isinstance(asked, str) and "canonical_solution" in row else "")
    return text if re.search(rf"^(?:async )?def {re.escape(_text(row, 'entry_point'))}\(", text, re.MULTILINE) else ""


def _list(row: dict[str, Any], name: str) -> list[Any]:
    return row[name] if isinstance(row.get(name), list) else []


def _text(row: dict[str, Any], *names: str) -> str:
    """The first of some fields that holds a text."""
    return next((row[name] for name in names if isinstance(row.get(name), str) and row[name]), "")

"""Rows of other datasets as rows of this environment.

HumanEval and EvalPlus rows have a `prompt` of code and a `test` with `check(candidate)`. BigCodeBench rows have an
`instruct_prompt`, a `complete_prompt` of code and a `test` with test cases. MBPP rows have a `text` or `prompt` of
words and a `test_list` of asserts. A row that has `responses_create_params` keeps its own prompt, as after `ludus data
convert`.
"""

from __future__ import annotations

import re
from typing import Any

_FUNCTION = re.compile(r"^(?:async )?def (\w+)", re.MULTILINE)

_ASK = "Answer with the whole program in one block:\n```python\n# your program\n```"
_COMPLETE = "Complete this Python program.\n\n```python\n{code}\n```\n\n" + _ASK
_WRITE = "{words}\n\nYour function must pass tests such as this one:\n```python\n{example}\n```\n\n" + _ASK


def mapped(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the fields of this environment."""
    found = dict(row)
    code = _text(row, "context", "complete_prompt") or ("" if _list(row, "test_list") else _code(row))
    body, whole = _text(row, "canonical_solution"), _text(row, "solution", "code")
    tests, imports = _list(row, "test_list"), _list(row, "test_imports")
    found["context"] = code or "\n".join(map(str, imports))
    found["solution"] = whole or (f"{code}{body}" if body else None)
    found["test_list"] = tests
    if not found.get("entry_point") and whole and tests:
        used = " ".join(map(str, tests))
        names = [name for name in _FUNCTION.findall(whole) if re.search(rf"\b{name}\(", used)]
        found["entry_point"] = names[-1] if names else ""
    if "responses_create_params" not in row and (asked := _prompt(row, code, tests)):
        found["responses_create_params"] = {"input": [{"role": "user", "content": asked}]}
    return found


def _prompt(row: dict[str, Any], code: str, tests: list[Any]) -> str:
    if instruction := _text(row, "instruct_prompt"):
        return instruction
    if words := _text(row, "text", "prompt") if tests else "":
        return _WRITE.format(words=words, example=tests[0])
    return _COMPLETE.format(code=code.strip("\n")) if code else ""


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

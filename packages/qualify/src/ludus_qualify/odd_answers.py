"""Odd answers: what no verifier expects, and what a model can write all the same.

A rollout that fails has no reward and leaves its group. So an answer that makes a verifier or a tool fail is a way out
for the policy: whoever writes 5,000 digits instead of a wrong answer is not punished. Every one of these answers must
therefore end in a verdict. They are drawn from a seed: huge numbers, deep nesting, text that is not quite text, fences
and brackets that never close, calls of tools with arguments of every wrong kind, and right answers in which one value
is odd.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ludus.model import Request
from ludus.qualify.dummies import dummy
from ludus_qualify.attempts import Script

#: How many odd answers `ludus qualify` tries, and characters of the longest one.
ANSWERS = 100
LONGEST = 10_000_000

_DIGITS = "9" * 5_000
_DEEP = 50_000

NUMBERS = (
    _DIGITS,
    f"-{_DIGITS}",
    f"0.{_DIGITS}",
    f"{_DIGITS}/{_DIGITS}",
    f"{_DIGITS}.5e{_DIGITS}",
    f"{_DIGITS}%",
    f"${_DIGITS}",
    f"{_DIGITS}:00",
    f"{_DIGITS}-01-01",
    f"2024-01-01T{_DIGITS}",
    f"9^{{{_DIGITS}}}",
    ",".join(["999"] * 2_000),
    "0x" + "f" * 5_000,
    "1" + "_0" * 5_000,
    "1e999999999",
    "-1e-999999999",
    "1/0",
    "0/0",
    "NaN",
    "-Infinity",
    "∞",
    "9**9**9**9",
    "99!" * 20,
    "1e400",
    "\u0663\u0661",
    "\U0001d7d7" * 5_000,
    "²³½",
    "0" * 5_000 + "1",
    "9999-99-99 99:99:99",
    "0000-00-00",
    "10000-01-01T00:00:00+99:99",
    "--5",
    "+-+-1",
)
NESTED = (
    "[" * _DEEP,
    "[" * _DEEP + "]" * _DEEP,
    "(" * _DEEP + "1" + ")" * _DEEP,
    '{"a":' * _DEEP + "1" + "}" * _DEEP,
    "{" * _DEEP,
    "-" * _DEEP + "1",
    "not " * _DEEP + "True",
    "1" + "+1" * _DEEP,
    "<a>" * _DEEP + "</a>" * _DEEP,
    "- " * _DEEP,
    "a." * _DEEP + "a = 1",
    r"\frac{1}{" * 2_000 + "1" + "}" * 2_000,
    r"\sqrt{" * _DEEP,
    r"\left(" * _DEEP,
    r"\boxed{" * _DEEP,
    "<answer>" * _DEEP,
    "SELECT (" * 5_000 + "1" + ")" * 5_000,
    "lambda: " * _DEEP + "0",
    "if True:\n " * 500 + "pass",
    "*" * _DEEP,
    "#" * _DEEP,
    "> " * _DEEP,
)
TEXTS = (
    "",
    " ",
    "\n\t\r\x0b\x0c",
    "\u200b\u200d\ufeff",
    "\x00",
    "1\x002",
    "\ud800",
    "\udcff 42",
    "\ud83d",
    "".join(map(chr, range(32))),
    "\x1b[2J\x1b]0;title\x07",
    "\u202e24\u202c",
    "a" + "\u0301" * 5_000,
    "\ufdfa" * 5_000,
    "\U0010ffff\ufffe",
    "\\" * 5_001,
    "'" * 5_001,
    '"' * 5_001,
    "%s%n%(x)s{}{0}{0.__class__}{",
    "{{{}}}{{",
    "$&\\1\\g<0>(?P<x",
    "(a+)+$" * 100,
    "a" * 100_000 + "!",
    "../" * 1_000 + "etc/passwd",
    "<![CDATA[" * 100,
    '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;">]><a>&d;</a>',
    "a: &a [*a, *a]\nb: &b [*a, *a]",
    "!!python/object/apply:os.system [ls]",
    "=cmd|'/C calc'!A0",
    "None",
    "null",
    "undefined",
    "{}",
    "[]",
    "[null]",
    '[{"a": null}, 1, "x"]',
    '{"answer": ' + _DIGITS + "}",
    '{"a": 1, "a": 2}',
    "[1e999, -1e999, NaN]",
    "SELECT",
    "SELECT no_such_column FROM no_such_table",
    "SELECT " + _DIGITS,
    "SELECT nothing, " + ", ".join(f"c{number}" for number in range(3_000)),
    "SELECT 1 LIMIT " + _DIGITS,
    "SELECT '" + "x" * 100_000 + "' LIKE '" + "%x" * 5_000 + "'",
    "; " * 10_000,
    "--\n" * 10_000,
    "/*" * 10_000,
    "import os\nos._exit(7)",
    "raise SystemExit(1e999)",
    "def f(:\n  pass",
    "\x0cx = 1\n\ty = 2\n  z = 3",
    "# -*- coding: nonsense -*-\nx = 1",
    "x = " + _DIGITS,
    "diff --git a/x b/x\n@@ -1," + _DIGITS + " +1 @@\n-x\n+y",
    "<<<<<<< SEARCH\n=======\n>>>>>>> REPLACE",
    "yes and no",
    "A B C D E F",
    "I refuse.",
)

_FORMS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: rf"\boxed{{{text}}}",
    lambda text: rf"\boxed{{{text}",
    lambda text: f"<answer>{text}</answer>",
    lambda text: f"<answer>{text}",
    lambda text: f"Answer: {text}",
    lambda text: f"```\n{text}\n```",
    lambda text: f"```json\n{text}\n```",
    lambda text: f"```python\n{text}\n```",
    lambda text: f"```sql\n{text}\n```",
    lambda text: f"```python\n{text}",
    lambda text: f"```{text}```",
    lambda text: f"<think>{text}",
    lambda text: f'{{"answer": {text}}}',
    lambda text: f"[{text}]",
    lambda text: f"SELECT {text} FROM {text}",
    lambda text: f"```bash\n{text}\n```",
)

#: Arguments of a call that are no JSON object, or none that fits.
ARGUMENTS = (
    "",
    " ",
    "null",
    "[]",
    "1",
    '"text"',
    "{",
    '{"a": 1',
    "{'a': 1}",
    '{"a": NaN}',
    '{"a": 1}}',
    '{"a": 1, "a": 2}',
    '{"\\ud800": "\\udfff"}',
    '{"a": "\\u0000"}',
    "[" * _DEEP,
    '{"a":' * _DEEP + "1" + "}" * _DEEP,
    '{"a": ' + _DIGITS + "}",
    "\x00\x01\x02",
    "\ud800",
)
_NAMES = ("", " ", "no_such_tool", "verify", "__init__", "close", "../tool", "x" * 10_000, "\x00", "\ud800", "tool\n")


_VALUE = re.compile(r"[-+]?\d[\d.,]*|\w+")


class OddAnswer(NamedTuple):
    """One odd answer: its name says what is odd about it."""

    name: str
    script: Script


def odd_answers(
    count: int = ANSWERS,
    *,
    seed: int = 0,
    answer: Callable[[str], Script] | None = None,
    right: Script | None = None,
) -> Iterator[OddAnswer]:
    """Odd answers, drawn from a seed. The first one is 10 MB long.

    `answer` writes a text as the final answer of an environment; without it, only common forms are used. `right` is a
    right answer: some odd answers change one value of it.
    """
    if count > 0:
        yield OddAnswer("long", ["9 a\n" * (LONGEST // 4), "9 a"])  # once: a conversation would repeat it
    for number in range(1, count):
        rng = random.Random(f"odd/{seed}/{number}")
        if right is not None and not callable(right) and rng.random() < 0.3:
            yield OddAnswer(f"spoiled/{number}", _spoiled(rng, right))
            continue
        kind, draw = rng.choices(*_KINDS)[0]
        yield OddAnswer(f"{kind}/{number}", draw(rng, answer))


def _written(rng: random.Random, text: str, answer: Callable[[str], Script] | None) -> Script:
    """A text as it stands, in a common form, or as the environment's own answers are written."""
    if answer is not None and rng.random() < 0.5:
        return answer(text)
    form = rng.choice(_FORMS)
    return f"{rng.choice(('', 'So: ', text[:200]))}{form(text)}"


def _spoiled(rng: random.Random, right: Any) -> Any:
    """A right answer in which one value is odd: a number or a word of a text, or an argument of a call."""
    if isinstance(right, str):
        values = list(_VALUE.finditer(right))
        numbers = [value for value in values if value[0][-1].isdigit()]
        if not values:
            return rng.choice(TEXTS)
        value = rng.choice(numbers if numbers and rng.random() < 0.7 else values)
        return f"{right[: value.start()]}{rng.choice((*NUMBERS, *TEXTS))}{right[value.end() :]}"
    if isinstance(right, list) and right:
        place = rng.randrange(len(right))
        return [*right[:place], _spoiled(rng, right[place]), *right[place + 1 :]]
    if isinstance(right, dict) and right.keys() & {"call", "calls", "name", "text"}:
        key = rng.choice([key for key in ("text", "calls", "arguments") if right.get(key)] or ["text"])
        spoiled = _spoiled(rng, right.get(key) or "")
        return right | {key: json.dumps(spoiled) if isinstance(spoiled, dict) else spoiled}
    if isinstance(right, dict) and right:
        key = rng.choice(list(right))
        nested = isinstance(right[key], (list, dict)) and right[key]
        return right | {key: _spoiled(rng, right[key]) if nested else _argument(rng, right[key])}
    return _argument(rng, right)


def _number(rng: random.Random, answer: Callable[[str], Script] | None) -> Script:
    return _written(rng, rng.choice(NUMBERS), answer)


def _nesting(rng: random.Random, answer: Callable[[str], Script] | None) -> Script:
    return _written(rng, rng.choice(NESTED), answer)


def _text(rng: random.Random, answer: Callable[[str], Script] | None) -> Script:
    return _written(rng, rng.choice(TEXTS), answer)


def _mixture(rng: random.Random, answer: Callable[[str], Script] | None) -> Script:
    """Pieces of other odd answers, and characters from all over Unicode."""
    pieces = [rng.choice((*NUMBERS, *NESTED, *TEXTS))[: rng.randint(1, 60)] for _ in range(rng.randint(1, 8))]
    pieces += ["".join(chr(rng.randrange(0x110000)) for _ in range(rng.randint(1, 20)))]
    rng.shuffle(pieces)
    return _written(rng, rng.choice(("", " ", "\n", ",", "```", "|")).join(pieces), answer)


def _items(rng: random.Random, answer: Callable[[str], Script] | None) -> Script:
    """An answer without a text, or with parts that few verifiers know."""
    return rng.choice(
        (
            {"items": []},
            {"reasoning": rng.choice(TEXTS)},
            {"text": rng.choice(TEXTS), "incomplete": "max_output_tokens"},
            {"items": [{"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}]},
            {"items": [{"type": "message", "role": "assistant", "content": []}]},
            {"items": [{"type": "no_such_item", "id": "x"}]},
            {"text": "", "reasoning": rng.choice(NUMBERS)},
        )
    )


def _calls(rng: random.Random, answer: Callable[[str], Script] | None) -> Script:
    """Calls with odd arguments, then an odd text. The tools are those that the request offers."""
    seed, last = rng.random(), rng.choice((*NUMBERS, *TEXTS))

    def turn(request: Request) -> Any:
        own = random.Random(f"{seed}/{request.turn}")
        if request.turn >= 3:
            return last
        tools = [tool for tool in request.params.get("tools") or [] if tool.get("name")]
        return {"calls": [_call(own, tools) for _ in range(own.randint(1, 4))]}

    return turn


def _call(rng: random.Random, tools: list[dict[str, Any]]) -> dict[str, Any]:
    if not tools or rng.random() < 0.2:
        return {"name": rng.choice(_NAMES), "arguments": rng.choice(ARGUMENTS)}
    tool = rng.choice(tools)
    if rng.random() < 0.3:
        return {"name": tool["name"], "arguments": rng.choice(ARGUMENTS)}
    arguments = dummy(tool.get("parameters"))
    if not isinstance(arguments, dict):
        return {"name": tool["name"], "arguments": "{}"}
    names = list(arguments)
    for name in rng.sample(names, min(len(names), rng.randint(1, 2))):
        if rng.random() < 0.2:
            del arguments[name]
        else:
            arguments[name] = _argument(rng, arguments[name])
    return {"name": tool["name"], "arguments": json.dumps(arguments)}  # what orjson cannot write, a model can


def _argument(rng: random.Random, usual: Any) -> Any:
    """An odd value in place of a usual one: of another type, or of the same type and extreme."""
    if isinstance(usual, str) and rng.random() < 0.7:
        return rng.choice((*NUMBERS, *NESTED, *TEXTS))
    if isinstance(usual, (int, float)) and not isinstance(usual, bool) and rng.random() < 0.7:
        return rng.choice((0, -1, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, -0.0, 5e-324, True))
    return rng.choice((None, [], {}, [None], {"": {}}, [[[[]]]], "", "x", 0, -1, 1.5, True, [1] * 10_000))


#: The kinds of odd answers with their weights.
_KINDS: tuple[list[tuple[str, Any]], list[int]] = (
    [
        ("number", _number),
        ("nesting", _nesting),
        ("text", _text),
        ("mixture", _mixture),
        ("items", _items),
        ("calls", _calls),
    ],
    [20, 15, 30, 15, 5, 15],
)

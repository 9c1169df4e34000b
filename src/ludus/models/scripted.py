"""A model with fixed answers from a file or a function, for tests and demos.

A script is a list of turns. Every rollout plays them in order and repeats the last one. A turn is a text, or a mapping
with any of `text`, `reasoning`, `call` with `arguments`, `calls`, `items` (raw), `incomplete` (a reason), `delay`
(seconds) and `error` (`{kind: ..., cause: ...}`). An entry with `turns` is a rule: the first rule whose `when` is part
of the last user message is played.

    - when: capital of France
      turns:
        - call: look_up
          arguments: {city: Paris}
        - The answer is \\boxed{B}
    - turns: [I do not know.]
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import orjson

from ludus.errors import Failure, UserError, cannot_read, did_you_mean
from ludus.model import Model, ModelConfig, Request
from ludus.response import Item, Response, function_call, message, reasoning, texts_of
from ludus.runtime.encoding import json_error
from ludus.runtime.imports import import_named
from ludus.runtime.settings import read_yaml

Script = list[Any]
RespondFunction = Callable[[Request], Any]
_TEXT = (str, int, float, date)  # YAML parses unquoted numbers and dates, but they are meant as text
_LIST = (list, tuple)

#: For each key of a turn: the expected value in words, and a check of a value.
_TURN_KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("a text", lambda value: isinstance(value, _TEXT)),
    "reasoning": ("a text", lambda value: isinstance(value, _TEXT)),
    "call": ("the name of a tool", lambda value: isinstance(value, str)),
    "arguments": ("arguments", lambda value: True),
    "calls": ("a list of {name: ..., arguments: ...}", lambda value: _are_calls(value)),
    "items": ("a list of items", lambda value: isinstance(value, _LIST) and all(isinstance(it, dict) for it in value)),
    "incomplete": ("a reason", lambda value: isinstance(value, str)),
    "delay": ("a number of seconds", lambda value: isinstance(value, int | float) and value >= 0),
    "error": ("written {kind: ..., cause: ...}", lambda value: isinstance(value, dict)),
}
_HINT = "Write it as scripted:FILE or scripted:module:function"


class ScriptedModel(Model):
    """Answers from a script, or from a function (plain or `async`) from a `Request` to a turn or a `Response`.

    ScriptedModel([{"call": "increment_counter", "arguments": {"count": 3}}, "Done."])
    ScriptedModel(lambda request: f"turn {request.turn}")
    """

    def __init__(self, script: Script | RespondFunction, name: str = "scripted") -> None:
        self.name = name
        self.config = self.Config()
        self._script = script
        self._answer = script if callable(script) else _player(script, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the script, so that worker processes can play it too. A function must have a name to import."""
        return type(self), (self._script, self.name)

    @classmethod
    def load(cls, source: str, config: ModelConfig | None = None) -> ScriptedModel:
        """`FILE` (YAML or JSONL) or `module:function`."""
        module_name, _, function = source.partition(":")
        if not module_name:
            raise UserError("scripted names no script", _HINT)
        name = f"scripted:{source}"
        if Path(source).suffix in (".yaml", ".yml", ".json", ".jsonl"):
            return cls(_read(Path(source)), name)
        try:
            if "" not in sys.path and str(Path.cwd()) not in sys.path:
                sys.path.insert(0, str(Path.cwd()))  # a console script does not import from the working directory
            module = import_named(module_name)
        except ModuleNotFoundError as error:
            raise UserError(f"cannot load {name}: {error}", _module_hint(module_name, function, error)) from error
        wanted = function or "respond"
        functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        if (respond := getattr(module, wanted, None)) is None:
            raise UserError(f"cannot load {name}: {module_name} has no {wanted}", did_you_mean(wanted, functions))
        if not callable(respond):
            cause = f"cannot load {name}: {wanted} is not a function"
            raise UserError(cause, f"Name a function of {module_name}: {', '.join(functions) or 'it has none'}")
        return cls(respond, name)

    async def respond(self, request: Request) -> Response:
        """Play the turn of the script for this request."""
        answer = self._answer(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Response):
            return answer
        if problem := turn_problem(answer):
            raise Failure("bad_response", f"{self.name}: {problem}")
        turn: dict[str, Any] = answer if isinstance(answer, dict) else {"text": str(answer)}
        if delay := turn.get("delay"):
            await asyncio.sleep(delay)
        if error := turn.get("error"):
            raise Failure(str(error.get("kind", "crash")), str(error.get("cause", "the script raised this error")))
        fields: dict[str, Any] = {}
        if reason := turn.get("incomplete"):
            fields = {"status": "incomplete", "incomplete_details": {"reason": reason}}
        return Response.of(*_items(turn, request.turn), model=self.name, **fields)


def _module_hint(module: str, function: str, error: ModuleNotFoundError) -> str:
    """What to write instead of a module that cannot be found."""
    if error.name is not None and error.name != module and not module.startswith(f"{error.name}."):
        return f"{module} imports it: install it"
    if module.endswith(".py"):
        return f"Write a module without its suffix: scripted:{module[:-3]}:{function or 'FUNCTION'}"
    beside = [path.stem for path in Path().glob("*.py")]
    similar = difflib.get_close_matches(module, beside, n=1)
    if similar:
        return f"Did you mean scripted:{similar[0]}:{function or 'FUNCTION'}?"
    file = module.replace(".", "/")
    return f"{_HINT}. A module is a file {file}.py in this folder, or an installed package"


def _items(turn: dict[str, Any], number: int) -> list[Item]:
    items: list[Item] = []
    if turn.get("reasoning") is not None:
        items.append(reasoning(str(turn["reasoning"]), id=f"rs_{number}"))
    if turn.get("text") is not None:
        items.append(message(str(turn["text"]), id=f"msg_{number}"))
    calls = list(turn.get("calls") or [])
    if turn.get("call") is not None:
        calls.insert(0, {"name": turn["call"], "arguments": turn.get("arguments") or {}})
    for position, call in enumerate(calls):
        items.append(function_call(call["name"], call.get("arguments", {}), call_id=f"call_{number}_{position}"))
    return [*items, *(turn.get("items") or [])]


def turn_problem(turn: Any) -> str | None:
    """What is wrong with a turn, and what is allowed; None if it is valid."""
    if isinstance(turn, _TEXT):
        return None
    if isinstance(turn, _LIST):
        several = '{"calls": [{"name": ..., "arguments": {...}}]}'
        return f"a turn is a text or a mapping, not list. For several calls write {several}"
    if not isinstance(turn, dict):
        return f"a turn is a text or a mapping, not {type(turn).__name__}: {turn!r:.2000}"
    for key, value in turn.items():
        if key not in _TURN_KEYS:
            return f"a turn has no key {key}. Known: {', '.join(sorted(_TURN_KEYS))}"
        wanted, is_valid = _TURN_KEYS[key]
        if value is not None and not is_valid(value):  # null means unset
            return f"{key} must be {wanted}, not {value!r:.2000}"
    return None


def _are_calls(value: Any) -> bool:
    return isinstance(value, _LIST) and all(isinstance(it, dict) and isinstance(it.get("name"), str) for it in value)


def _player(script: Script, name: str) -> RespondFunction:
    if not script:
        raise UserError(f"{name} is empty", "A script holds at least one turn")
    ruled = [isinstance(entry, dict) and "turns" in entry for entry in script]
    if any(ruled) and not all(ruled):
        raise UserError(f"{name} mixes turns and rules", "Give every entry its turns, or none")
    rules = script if ruled[0] else [{"turns": script}]
    for rule in rules:
        if not isinstance(rule["turns"], list) or not rule["turns"]:
            raise UserError(f"{name}: turns must be a list of turns, not {rule['turns']!r:.80}", "Write turns: [TURN]")
        if unknown := rule.keys() - {"when", "turns"}:
            raise UserError(f"{name}: a rule has no key {min(map(str, unknown))}", "Known: turns, when")
        if not isinstance(rule.get("when", ""), _TEXT):
            raise UserError(f"{name}: when must be a text, not {rule['when']!r:.60}", "Leave it out to match anything")
        for turn in rule["turns"]:
            if not isinstance(turn, Response) and (problem := turn_problem(turn)):
                raise UserError(f"{name}: {problem}")

    def answer(request: Request) -> Any:
        asked = next((texts_of(item) for item in reversed(request.input) if item.get("role") == "user"), "")
        for rule in rules:
            if str(rule.get("when", "")) in asked:
                turns = rule["turns"]
                return turns[min(request.turn, len(turns) - 1)]
        raise Failure("no_rule", f"{name} has no rule for: {asked[:100]}")

    return answer


def _read(path: Path) -> Script:
    if path.suffix == ".jsonl":
        return _read_lines(path)
    script = read_yaml(path, "script")
    if not isinstance(script, list):
        raise UserError(f"script {path} must hold a list of turns or rules")
    return script


def _read_lines(path: Path) -> Script:
    """Turns or rules as JSONL."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise cannot_read(f"script {path}", error) from error
    script = []
    for number, line in enumerate(lines, start=1):
        try:
            script += [orjson.loads(line)] if line.strip() else []
        except orjson.JSONDecodeError as error:
            raise UserError(f"script {path}:{number}: {json_error(error)}", "Write one turn or rule a line") from error
    return script

"""What qualification knows about an environment: how its answers are written and which answer is right.

Much of it is in the rows. The environment's folder may hold a `qualify.py` that defines the rest (`hooks.py` reads
it). All names are optional, and a function may return None for a task:

    settings = {"resources.KEY": VALUE}      settings for qualification, for example a scripted judge
    expected_exploits = {"tool_spam": (1.0, "why this is not a hole")}     how much a bad policy may earn, and why
    gold(task) -> str                        the right answer as a text
    answer(task, text) -> script             how a final answer is written so that the verifier finds it
    oracle(task) -> script                   a whole rollout that deserves the full reward
    options(task) -> list[str]               the options that the model chooses from
    chance(task) -> float                    the mean reward of guessing
    exploits(task) -> {name: script}         more bad policies
    preserving(task) -> {name: script}       other ways to write the right answer
    breaking(task) -> {name: script}         wrong answers that look like the right one
    program(task, source) -> script          how a Python program is handed in, if the environment runs programs
    shell(task, command) -> script           how a shell command is run where the model works, if it has a shell
    rivals(task) -> list[str]                the other answers in the group, if the environment judges groups

A script is a text, a turn or a list of turns, as `ScriptedModel` plays them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludus.environment import Environment
from ludus.record import GOLD_FIELDS, OPTION_FIELDS
from ludus.response import texts_of
from ludus.task import Task
from ludus_qualify.attempts import Script
from ludus_qualify.hooks import FILE, Hooks, a_list, answer_text, number, script, scripts
from ludus_qualify.planting import as_program
from ludus_qualify.variants import breaking, preserving


class Oracle:
    """The right answers of an environment and their form, from its `qualify.py` or else from its rows.

    oracle = Oracle.of(environment)
    oracle.script(task)   # a rollout that deserves the full reward, or None if it is unknown
    """

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self.settings: dict[str, Any] = hooks.constant("settings")
        self.expected: dict[str, tuple[float, str]] = hooks.constant("expected_exploits")

    @classmethod
    def of(cls, environment: Environment, hooks: Path | None = None) -> Oracle:
        """Read the file `hooks`, or else the environment's `qualify.py` if it has one."""
        return cls(Hooks.read(hooks) if hooks is not None else Hooks.of(environment.folder))

    def place(self, name: str) -> str:
        """`FILE:LINE` of a function of `qualify.py`; empty without it."""
        return self._hooks.place(name)

    def gold(self, task: Task) -> str | None:
        """The right answer as a text."""
        if "gold" in self._hooks:
            return self._hooks.call("gold", answer_text, task)
        texts = (_text(getattr(task, field, None)) for field in GOLD_FIELDS)
        return next((text for text in texts if text), None)

    def source(self, task: Task) -> str | None:
        """Where the right answer to a task comes from; None if it is unknown."""
        if "oracle" in self._hooks:
            return f"oracle(task) in {FILE}" if self.script(task) is not None else None
        if "gold" in self._hooks:
            return f"gold(task) in {FILE}" if self.gold(task) is not None else None
        fields = (field for field in GOLD_FIELDS if _text(getattr(task, field, None)))
        return next((f"the field {field} of the rows" for field in fields), None)

    def answer(self, task: Task, text: str) -> Script:
        """A final answer in the form that the task asks for; the text alone if the prompt names no form."""
        written = self._hooks.call("answer", script, task, text) if "answer" in self._hooks else None
        return as_asked(task, text) if written is None else written

    def script(self, task: Task) -> Script | None:
        """A rollout that deserves the full reward, or None if it is unknown."""
        if "oracle" in self._hooks:
            return self._hooks.call("oracle", script, task)
        gold = self.gold(task)
        return None if gold is None else self.answer(task, gold)

    def options(self, task: Task) -> list[str]:
        """The options as an answer writes them: their letters if they have letters."""
        if "options" in self._hooks:
            return [str(option) for option in self._hooks.call("options", a_list, task)]
        options = next((value for field in OPTION_FIELDS if (value := getattr(task, field, None))), None)
        if isinstance(options, dict):
            return [str(key) for key in options]
        if not isinstance(options, list):
            return []
        return [str(name) for option in options for name in (option if isinstance(option, dict) else [option])]

    def chance(self, task: Task) -> float:
        """The mean reward of guessing: by default 1 / number of options, or 0 without options."""
        if "chance" in self._hooks:
            return self._hooks.call("chance", number, task)
        options = self.options(task)
        return 1 / len(options) if options else 0.0

    def exploits(self, task: Task) -> dict[str, Script]:
        """The bad policies that the environment's `qualify.py` adds."""
        return self._scripts("exploits", task) or {}

    def program(self, task: Task, source: str) -> Script | None:
        """How a Python program that defines `cheat()` is handed in; None if the environment runs no programs."""
        return self._hooks.call("program", script, task, source) if "program" in self._hooks else None

    def planted(self, task: Task, command: str) -> Script | None:
        """How a shell script runs where the model works: as a command, or in a program; None if nothing runs there."""
        if "shell" in self._hooks:
            return self._hooks.call("shell", script, task, command)
        return self.program(task, as_program(command))

    @property
    def has_rivals(self) -> bool:
        """Whether the environment's `qualify.py` defines `rivals`."""
        return "rivals" in self._hooks

    def rivals(self, task: Task) -> list[str]:
        """The other answers in the group of an answer."""
        return self._hooks.call("rivals", a_list, task) if self.has_rivals else []

    def preserving(self, task: Task) -> dict[str, Script]:
        """Other ways to write the right answer."""
        return self._variants("preserving", task, preserving)

    def breaking(self, task: Task) -> dict[str, Script]:
        """Wrong answers that look like the right one."""
        return self._variants("breaking", task, breaking)

    def _variants(self, name: str, task: Task, of_gold: Any) -> dict[str, Script]:
        own = self._scripts(name, task)
        if own is not None:
            return own
        gold = self.gold(task)
        if gold is None or "oracle" in self._hooks:
            return {}
        variants: dict[str, str] = of_gold(gold, self.options(task))
        return {name: self.answer(task, text) for name, text in variants.items()}

    def _scripts(self, name: str, task: Task) -> dict[str, Script] | None:
        return self._hooks.call(name, scripts, task) if name in self._hooks else None


def as_asked(task: Task, text: str) -> str:
    """A text in the form that the prompt asks for: in `\\boxed{}`, in `<answer>` tags, after "Answer:", or alone."""
    prompt = prompt_of(task)
    if "\\boxed" in prompt:
        return rf"\boxed{{{text}}}"
    if "<answer>" in prompt:
        return f"<answer>{text}</answer>"
    return f"Answer: {text}" if "answer:" in prompt.lower() else text


def prompt_of(task: Task) -> str:
    """All texts of the task's input, one per line."""
    return "\n".join(filter(None, map(texts_of, task.input)))


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != "" else None

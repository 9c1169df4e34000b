"""A user played by rules instead of a model, named in settings as `scripted:ludus.agents.plain_user`.

It brings up what it wants, one thing after the other, tells what it knows when it is asked for it, agrees to what is
proposed unless its part says that it refuses it, uses its tools when it is asked for what they do, and ends the
conversation when there is nothing left. It is the same every time, which tests, demos and qualification need; it
understands little, and is no replacement for a model where a policy is trained to talk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ludus.agents.user import STOP, TRANSFER, UserRole
from ludus.model import Request
from ludus.response import texts_of

GO_ON = "I cannot say. Please go on with what I have told you."
WAIT = "All right."
YES = "Yes, please."

#: How often it puts up with a question that it has no answer to, or with a promise, before it leaves.
PATIENCE = 3

_WORD = re.compile(r"[a-z]{3,}")
_HANDED_OVER = re.compile(r"\btransferr(?:ed|ing)\b|\bhand(?:ed|ing) you over\b", re.IGNORECASE)
_ANYTHING_ELSE = re.compile(r"\b(?:anything|something|what) else\b|\bfurther (?:help|questions)\b", re.IGNORECASE)
_PROMISE = re.compile(r"\b(?:let me|one moment|a moment|hold on|please wait|i will|i'll|going to)\b", re.IGNORECASE)
_PROPOSAL = re.compile(
    r"\b(?:confirm|shall i|should i|would you like|do you want|may i|can i|proceed|go ahead|agree|is that|are you)\b",
    re.IGNORECASE,
)
_REQUEST = re.compile(r"\?|\bplease\b|\bi need\b|\bprovide\b|\btell me\b|\bgive me\b", re.IGNORECASE)
_COMMON = frozenset("the your you and for number name code new old date address".split())


def respond(request: Request) -> Any:
    """The next message or tool call of the user whose part stands in the system message."""
    items = request.input
    role = UserRole.read(texts_of(items[0]))
    own = [texts_of(item) for item in items if item.get("role") == "assistant"]
    heard = next((texts_of(item) for item in reversed(items) if item.get("role") == "user"), "")
    if items[-1].get("type") == "function_call_output":
        return f"I have done that. It says: {items[-1]['output']}"
    wants = role.goal.split("\n")
    if not own:
        return wants[0] or "Hello, can you help me?"
    left = [want for want in wants if not any(want in said for said in own)]
    return _Turn(role, own, heard.partition(": ")[2], left).answer(request.params.get("tools") or [])


@dataclass(frozen=True)
class _Turn:
    """What the user knows when it answers: its part, what it said and heard, and what it still wants."""

    role: UserRole
    own: list[str]
    heard: str
    left: list[str]

    def answer(self, tools: list[dict[str, Any]]) -> Any:
        heard = self.heard
        if _HANDED_OVER.search(heard):
            return TRANSFER
        if _REQUEST.search(heard) and not _ANYTHING_ELSE.search(heard):
            return self._asked(tools)
        if _PROMISE.search(heard) and not _ANYTHING_ELSE.search(heard) and self._patient_with(WAIT):
            return WAIT
        return self._next()

    def _asked(self, tools: list[dict[str, Any]]) -> Any:
        words = _words(self.heard)
        for tool in tools:
            if _words(str(tool["name"]).replace("_", " ")) <= words:
                return {"call": tool["name"]}
        asked = {name: fact for name, fact in self.role.facts.items() if _names(name, words)}
        told = "\n".join(self.own)
        if any(fact not in told for fact in asked.values()):
            return _told(asked)
        refused = [thing for thing in self.role.refuses if _names(thing, words)]
        if refused:
            return f"No, I do not want {refused[0]}. Then leave everything as it is."
        if _PROPOSAL.search(self.heard):
            return YES
        if asked:
            return _told(asked)
        return GO_ON if self._patient_with(GO_ON) else STOP

    def _next(self) -> str:
        return self.left[0] if self.left else STOP

    def _patient_with(self, reply: str) -> bool:
        return sum(reply in said for said in self.own) < PATIENCE


def _told(facts: dict[str, str]) -> str:
    return f"Here you are. {'; '.join(f'{name}: {fact}' for name, fact in facts.items())}."


def _words(text: str) -> set[str]:
    """The words of a text; a plural is its singular."""
    return {word.removesuffix("s") for word in _WORD.findall(text.lower())}


def _names(thing: str, words: set[str]) -> bool:
    """Whether a thing is meant: one of its words that tell it from others is there, or all where none does."""
    named = _words(thing)
    telling = named - _COMMON
    return bool(telling & words) if telling else bool(named) and named <= words

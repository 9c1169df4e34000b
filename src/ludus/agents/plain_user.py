"""A simulated user that follows rules instead of a model; its model spec is `scripted:ludus.agents.plain_user`.

The user states its goals one after the other. If asked, it tells its facts and uses its tools. It agrees to every
proposal except the ones that its role refuses. When no goal is left, it ends the conversation. It is deterministic, as
tests, demos and qualification need. It understands little: train a conversational policy with a model as the user.
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

#: The most times that the user replies GO_ON to questions without an answer, or WAIT to promises.
PATIENCE = 3

_WORD = re.compile(r"[a-z]{3,}")
_HANDED_OVER = ("transferred", "transferring", "handed you over", "handing you over")
_ANYTHING_ELSE = ("anything else", "something else", "what else", "further help", "further questions")
_PROMISE = ("let me", "one moment", "a moment", "hold on", "please wait", "i will", "i'll", "going to")
_PROPOSAL = (
    *("confirm", "shall i", "should i", "would you like", "do you want", "may i", "can i", "proceed", "go ahead"),
    *("agree", "is that", "are you"),
)
_REQUEST = ("please", "i need", "provide", "tell me", "give me")
_COMMON = frozenset("the your you and for number name code new old date address".split())


def respond(request: Request) -> Any:
    """The next message or tool call of the user whose role is in the system message."""
    items = request.input
    role = UserRole.read(texts_of(items[0]))
    own = [texts_of(item) for item in items if item.get("role") == "assistant"]
    heard = next((texts_of(item) for item in reversed(items) if item.get("role") == "user"), "")
    if items[-1].get("type") == "function_call_output":
        return f"I have done that. It says: {items[-1]['output']}"
    goals = role.goal.split("\n")
    if not own:
        return goals[0] or "Hello, can you help me?"
    unsaid = [goal for goal in goals if not any(goal in said for said in own)]
    return _Turn(role, own, heard.partition(": ")[2], unsaid).answer(request.params.get("tools") or [])


@dataclass(frozen=True)
class _Turn:
    """One turn of the user: its role, its own messages, the message to answer, and the goals not yet stated."""

    role: UserRole
    own: list[str]
    heard: str
    unsaid: list[str]

    def answer(self, tools: list[dict[str, Any]]) -> Any:
        heard = self.heard.lower()
        if _says(heard, _HANDED_OVER):
            return TRANSFER
        if ("?" in heard or _says(heard, _REQUEST)) and not _says(heard, _ANYTHING_ELSE):
            return self._answer_to_request(tools)
        if _says(heard, _PROMISE) and not _says(heard, _ANYTHING_ELSE) and self._may_repeat(WAIT):
            return WAIT
        return self.unsaid[0] if self.unsaid else STOP

    def _answer_to_request(self, tools: list[dict[str, Any]]) -> Any:
        words = _words(self.heard)
        for tool in tools:
            if _words(str(tool["name"]).replace("_", " ")) <= words:
                return {"call": tool["name"]}
        asked = {name: fact for name, fact in self.role.facts.items() if _mentioned(name, words)}
        told = "\n".join(self.own)
        if any(fact not in told for fact in asked.values()):
            return _facts_message(asked)
        refused = [thing for thing in self.role.refuses if _mentioned(thing, words)]
        if refused:
            return f"No, I do not want {refused[0]}. Then leave everything as it is."
        if _says(self.heard.lower(), _PROPOSAL):
            return YES
        if asked:
            return _facts_message(asked)
        return GO_ON if self._may_repeat(GO_ON) else STOP

    def _may_repeat(self, reply: str) -> bool:
        return sum(reply in said for said in self.own) < PATIENCE


def _facts_message(facts: dict[str, str]) -> str:
    return f"Here you are. {'; '.join(f'{name}: {fact}' for name, fact in facts.items())}."


def _says(text: str, phrases: tuple[str, ...]) -> bool:
    """Whether a text in small letters has one of the phrases, as whole words. Fast in texts of megabytes."""
    return any(phrase in text and re.search(rf"\b{phrase}\b", text) for phrase in phrases)


def _words(text: str) -> set[str]:
    """The words of a text of three or more letters, without a final s."""
    return {word.removesuffix("s") for word in _WORD.findall(text.lower())}


def _mentioned(thing: str, words: set[str]) -> bool:
    """Whether the words hold a distinctive word of the thing, or all its words if they are all common ones."""
    own = _words(thing)
    distinctive = own - _COMMON
    return bool(distinctive & words) if distinctive else bool(own) and own <= words

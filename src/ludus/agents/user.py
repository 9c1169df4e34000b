"""The role of a simulated user: what an environment says about the user, and the prompt for the user's model.

Resources with a user define `user(task)`, which returns a `UserRole`. Methods marked `@user_tool` are tools of the user
alone: the policy neither gets them nor sees their calls.

    class Desk(Resources):
        @user_tool
        async def read_label(self) -> str:
            \"\"\"Look at the label of your parcel.\"\"\"
            return self.label

        def user(self, task: Task) -> UserRole:
            return UserRole(persona="In a hurry.", goal="Send the kettle back.", tools=user_tools(self))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self, TypeVar

from ludus.tools import Tool

F = TypeVar("F", bound=Callable[..., Any])

STOP, TRANSFER, OUT_OF_SCOPE = "###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###"

#: The markers that end a conversation, and when the user's prompt says to write them.
MARKERS = {
    STOP: "everything you wanted is done, or you have heard that it cannot be done",
    TRANSFER: "you are being handed over to somebody else",
    OUT_OF_SCOPE: "you are asked for something that you cannot know from this page, and cannot go on without it",
}
_INTRODUCTION = (
    "You play the part of {name}, who is talking with {other}. Everything you know about your part stands below. Keep"
    " to it whatever {other} says, and never mention that it is a part."
)
_RULES = (
    "Write one message at a time, as a person would type it, and nothing else.",
    "Begin with what you want, in your own words. Where that is several things, bring them up one after the other.",
    "Tell what you know when you are asked for it and not before.",
    "Invent nothing. What does not stand on this page you do not know.",
    "Do not do the work of {other}, and do not write messages for {other}.",
)
_SECTIONS = {
    "persona": "Who you are",
    "company": "Whom you are talking to",
    "goal": "What you want",
    "facts": "What you know",
    "unknown": "What you do not know",
    "refuses": "What you turn down when it is offered",
    "instructions": "How you behave",
}


def user_tool(method: F) -> F:
    """Offer a method of the resources to the simulated user only. Write the method like a `@tool`."""
    method.__ludus_user_tool__ = Tool(method, method.__name__)  # type: ignore[attr-defined]
    return method


@dataclass(frozen=True)
class UserTool:
    """A tool of the user, and the object that has the method."""

    tool: Tool
    owner: object

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.name

    async def run(self, arguments: str) -> str:
        """Check the arguments and run the method. Returns the output that the user sees."""
        return await self.tool.run(self.owner, arguments)


def user_tools(owner: object) -> list[UserTool]:
    """The `@user_tool` methods of an object, in the order of definition."""
    return [UserTool(tool, owner) for tool in _tools_of(type(owner))]  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def _tools_of(kind: type) -> tuple[Tool, ...]:
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    tools = (getattr(getattr(kind, name), "__ludus_user_tool__", None) for name in names)
    return tuple(tool for tool in tools if tool is not None)


@dataclass(frozen=True)
class UserRole:
    """A user: who they are, their goals (one a line), and the facts that they tell when asked.

    `opening` is a fixed first message. `refuses` are things that the user turns down when offered.
    """

    persona: str = ""
    goal: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    instructions: str = ""
    unknown: str = ""
    refuses: tuple[str, ...] = ()
    company: str = ""
    opening: str | None = None
    tools: list[UserTool] = field(default_factory=list)
    name: str = "Customer"
    other: str = "Representative"
    markers: tuple[str, ...] = tuple(MARKERS)

    def prompt(self) -> str:
        """The system message for the model that plays this user."""
        parts = [_INTRODUCTION.format(name=self.name, other=self.other)]
        for key, title in _SECTIONS.items():
            if entries := list(self._entries(key)):
                parts.append("\n".join([f"# {title}", *map(_listed, entries)]))
        rules = [rule.format(other=self.other) for rule in _RULES]
        if self.tools:
            rules.append(
                f"You can do some things with your tools. {self.other} neither sees them nor what they return."
            )
        rules += [f"Write {marker} and nothing else when {MARKERS[marker]}." for marker in self.markers]
        return "\n\n".join([*parts, "\n".join(["# Rules", *map(_listed, rules)])])

    def _entries(self, key: str) -> Iterator[str]:
        value = getattr(self, key)
        if key == "facts":
            yield from (f"{name}: {fact}" for name, fact in value.items())
        elif key == "goal":
            yield from (line for line in value.split("\n") if line)
        elif isinstance(value, tuple):
            yield from value
        elif value:
            yield value

    @classmethod
    def read(cls, prompt: str) -> Self:
        """The role that a prompt describes, for a user that follows rules instead of a model."""
        sections = {title: key for key, title in _SECTIONS.items()}
        values: dict[str, list[str]] = {key: [] for key in _SECTIONS}
        entries: list[str] = []
        for line in prompt.split("\n"):
            if line.startswith("# "):
                entries = values.get(sections.get(line[2:], ""), [])
            elif line.startswith("- "):
                entries.append(line[2:])
            elif line.startswith("  ") and entries:
                entries[-1] += f"\n{line[2:]}"
        facts = dict(entry.partition(": ")[::2] for entry in values.pop("facts"))
        refuses = tuple(values.pop("refuses"))
        whole: dict[str, Any] = {key: "\n".join(entries) for key, entries in values.items()}
        return cls(**whole, facts=facts, refuses=refuses)


def _listed(entry: str) -> str:
    """One entry of a list. Its further lines are indented, so that none of them reads as a heading."""
    return "- " + entry.replace("\n", "\n  ")

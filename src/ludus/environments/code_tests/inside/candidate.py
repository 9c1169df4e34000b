"""The process of the model's program: it defines the program's functions and answers calls.

Nothing here is trusted by the tests: it can do no more than return values. It gets the arguments of one call at a time,
and never sees the tests.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any

from ludus.environments.code_tests.inside.crossing import Channel, decode, encode

#: How the process starts: its program comes through its standard input.
BOOT = """
import os, struct
def read(size):
    data = b""
    while len(data) < size:
        data += os.read(0, size - len(data)) or os._exit(1)
    return data
names = {"__name__": "candidate"}
exec(compile(read(*struct.unpack("!I", read(4))), "candidate", "exec"), names)
names["answer_calls"]()
"""


class Candidate:
    """The program, and the objects that it returned by reference."""

    def __init__(self, sources: list[str]) -> None:
        self.kept: list[Any] = []
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        self.names = vars(main)
        for source in sources:
            exec(compile(source, "main.py", "exec", dont_inherit=True), self.names)

    def refer(self, value: Any) -> int:
        """Keep an object that cannot cross, and return its number."""
        self.kept.append(value)
        return len(self.kept) - 1

    def call(self, name: str, arguments: list[Any], named: dict[str, Any]) -> dict[str, Any]:
        """Call a function. Arguments that it changed go back with the value."""
        values = [decode(part, lambda number, _: self.kept[number]) for part in arguments]
        more = {key: decode(part, lambda number, _: self.kept[number]) for key, part in named.items()}
        value = self.names[name](*values, **more)
        reply: dict[str, Any] = {"value": encode(value, self.refer)}
        if any(isinstance(part, (list, dict, set)) for part in values):
            after = [encode(part, self.refer) for part in values]
            reply["arguments"] = [new if new != old else None for new, old in zip(after, arguments, strict=True)]
        return reply

    def iterate(self, number: int) -> dict[str, Any]:
        """Begin to iterate over an object."""
        iterator = iter(self.kept[number])
        return {"value": self.refer(iterator), "itself": iterator is self.kept[number]}

    def advance(self, number: int) -> dict[str, Any]:
        """The next value of an iterator."""
        for value in self.kept[number]:
            return {"value": encode(value, self.refer)}
        return {"end": True}

    def length(self, number: int) -> dict[str, Any]:
        """The length of an object."""
        return {"value": len(self.kept[number])}

    def has(self, number: int, name: str) -> dict[str, Any]:
        """Whether an object has an attribute that `object` lacks."""
        value = self.kept[number]
        if name.startswith("__"):
            return {"value": getattr(type(value), name, None) is not getattr(object, name, None)}
        return {"value": hasattr(value, name)}

    def finish(self, number: int) -> dict[str, Any]:
        """Run a coroutine to its end."""
        import asyncio

        return {"value": encode(asyncio.run(self.kept[number]), self.refer)}


def answer_calls() -> None:
    """Serve the tests until they end."""
    channel = Channel(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    sys.setrecursionlimit(20_000)
    try:
        candidate = Candidate(channel.receive())
    except BaseException as error:
        channel.send(raised(error))
        return
    channel.send({"value": sorted(name for name, value in candidate.names.items() if callable(value))})
    while True:
        operation, *rest = channel.receive()
        try:
            reply = getattr(candidate, operation)(*rest)
        except BaseException as error:
            reply = raised(error)
        channel.send(reply)


def raised(error: BaseException) -> dict[str, Any]:
    """An exception, for the other side."""
    try:
        text = str(error)[:2000]
    except BaseException:
        text = ""
    return {"raised": [[kind.__module__, kind.__qualname__] for kind in type(error).__mro__], "text": text}

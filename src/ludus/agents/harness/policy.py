"""A scripted model for agent programs: it runs commands with the program's own shell tool, and then says it is done.

Its token ids are the characters of what it reads and writes, tools and instructions included. So a rollout shows
whether the program keeps its history: it is one sequence, or it breaks where the program changed something.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import orjson

from ludus.agents.harness.declaration import Declaration
from ludus.model import Model, Request
from ludus.response import Item, Response, function_call, message, reasoning
from ludus.tokens import Tokens, id_array

#: What a model reads of an item, whatever surrounds it. Ids are not part of it.
_READ = ("type", "role", "content", "summary", "name", "arguments", "input", "output")


class ShellPolicy(Model):
    """Runs one command a turn, as the declaration's `shell` says, and ends with an answer.

    `asked` are the requests that it got. A conversation without the shell tool gets a short answer.
    """

    name = "shell-policy"

    def __init__(self, declaration: Declaration, commands: Sequence[str], *, thinks: bool = True) -> None:
        self.asked: list[Request] = []
        self.characters: list[int] = []  #: of each prompt
        self.thinks = thinks
        self._shell = declaration.shell
        self._edit = declaration.edit
        self._commands = list(commands)
        if self._shell is not None and self._shell.last is not None:
            self._commands.append(self._shell.last)

    async def respond(self, request: Request) -> Response:
        """Play the next turn of the conversation."""
        self.asked.append(request)
        return self.with_tokens(request, self.turn(request, outputs_in(request)))

    def turn(self, request: Request, done: int) -> list[Item]:
        """The model's turn after `done` outputs of tools."""
        shell = self._shell
        if self._edit is not None:
            return [*self.thought("One edit."), message(self._edit if len(self.asked) == 1 else "Done.")]
        if shell is None or shell.tool not in tool_names(request):
            return [message("Write a file")]
        if done >= len(self._commands):
            return [*self.thought("The file is there, so I am done."), message("Done.")]
        arguments = {shell.argument: self._commands[done], **shell.other}
        call = function_call(shell.tool, self.written(arguments), call_id=f"call_{len(self.asked)}")
        return [*self.thought(f"Step {done + 1}."), message(f"I run command {done + 1}."), call]

    def thought(self, text: str) -> list[Item]:
        """The reasoning in front of a turn."""
        return [reasoning(text)] if self.thinks else []

    def written(self, arguments: dict[str, Any]) -> str:
        """Arguments as this model writes them."""
        return orjson.dumps(arguments).decode()

    def with_tokens(self, request: Request, turn: list[Item]) -> Response:
        """A turn with its ids."""
        before = [{"content": request.params.get(key)} for key in ("instructions", "tools")]
        prompt, generated = _ids([*before, *request.input]), _ids(turn)
        self.characters.append(len(prompt))
        return Response.of(*turn, tokens=Tokens(prompt, list(generated), [-0.5] * len(generated)))


def tool_names(request: Request) -> set[str]:
    """The names of the tools that a request offers."""
    return {str(tool.get("name")) for tool in request.params.get("tools") or []}


def outputs_in(request: Request) -> int:
    """How many outputs of tools a conversation has so far."""
    return sum(str(item.get("type", "")).endswith("_output") for item in request.input)


def _ids(items: Sequence[Item]) -> array[int]:
    read = (value for item in items for key in _READ if (value := item.get(key)) is not None)
    texts = (value if isinstance(value, str) else orjson.dumps(value, default=str).decode() for value in read)
    return id_array([*map(ord, "".join(f"{text};" for text in texts))])

"""Real OpenEnv servers for tests, made with openenv 0.10: `python openenv_server.py text|act|tools [SESSIONS]`.

Prints its port. The actions of the three environments are: one text, an object with several fields, tool calls.
"""

from __future__ import annotations

import random
import socket
import sys
import time
from typing import Any, Literal

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class Word(Action):
    text: str


class Heard(Observation):
    heard: str = ""
    count: int = 0


class Echo(Environment[Word, Heard, State]):
    """Repeats the texts. The secret of the seed ends the episode; `sleep`, `raise`, `unpaid` and `die` do just that."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, greeting: str = "hello", **_: Any) -> Heard:
        self.secret = str(random.Random(seed).randint(1, 10))
        self.said: list[str] = []
        return Heard(heard=f"{greeting} {self.secret}")

    def step(self, action: Word, timeout_s: float | None = None, **_: Any) -> Heard:
        self.said.append(action.text)
        if action.text.startswith("sleep"):
            time.sleep(float(action.text.split()[1]))
        if action.text == "raise":
            raise ValueError("the environment broke")
        if action.text == "die":
            import os

            os._exit(9)
        if action.text == "unpaid":
            return Heard(heard="nothing for that", count=len(self.said))
        right = action.text == self.secret
        return Heard(heard=",".join(self.said), count=len(self.said), reward=1.0 if right else -0.25, done=right)

    @property
    def state(self) -> State:
        return State(step_count=len(self.said))


class Move(Action):
    """Go somewhere."""

    direction: Literal["left", "right"]
    distance: int = 1


class Place(Observation):
    position: int = 0


class Line(Environment[Move, Place, State]):
    """Moves along a line to the goal at position 3."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Place:
        self.position = 0
        return Place()

    def step(self, action: Move, timeout_s: float | None = None, **_: Any) -> Place:
        self.position += action.distance if action.direction == "right" else -action.distance
        reached = self.position == 3
        return Place(position=self.position, done=reached, reward=float(reached))

    @property
    def state(self) -> State:
        return State()


class Calculator(MCPEnvironment):
    """Two tools over MCP. `finish` ends the episode, with reward 1 if the last sum was 5."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server: Any = FastMCP("calculator")

        @server.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            self.sum = a + b
            return self.sum

        @server.tool
        def finish() -> str:
            """End it."""
            self.finished = True
            return "bye"

        super().__init__(server)
        self.sum, self.finished = 0, False

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Observation:
        self.sum, self.finished = 0, False
        return Observation()

    def step(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return self._rewarded(super().step(action, timeout_s=timeout_s, **kwargs))

    async def step_async(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        return self._rewarded(await super().step_async(action, timeout_s=timeout_s, **kwargs))

    def _rewarded(self, observation: Observation) -> Observation:
        if isinstance(observation, CallToolObservation):
            observation.done = self.finished
            observation.reward = 1.0 if self.finished and self.sum == 5 else 0.0
        return observation

    def _step_impl(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        raise ValueError("only tools here")

    @property
    def state(self) -> State:
        return State()


KINDS: dict[str, Any] = {
    "text": (Echo, Word, Heard),
    "act": (Line, Move, Place),
    "tools": (Calculator, CallToolAction, CallToolObservation),
}

if __name__ == "__main__":
    sessions = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    app = create_fastapi_app(*KINDS[sys.argv[1]], max_concurrent_envs=sessions)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()  # whoever reads the port may connect at once
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])

"""The job's environment for OpenEnv, served by its own server: `python openenv_server.py SESSIONS` prints the port."""

import socket
import sys
from typing import Any

import uvicorn
from job import answer, look_up, prompt
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Said(Action):
    """A call of the tool (`number`), or the answer (`text`)."""

    number: int | None = None
    text: str | None = None


class Heard(Observation):
    text: str = ""


class Repeat(Environment[Said, Heard, State]):
    """The tool, and an exact match of the whole answer."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Heard:
        self.number = seed or 0
        return Heard(text=prompt(self.number))

    def step(self, action: Said, timeout_s: float | None = None, **_: Any) -> Heard:
        if action.text is None:
            return Heard(text=look_up(action.number or 0))
        return Heard(text="", reward=float(action.text == answer(self.number)), done=True)

    @property
    def state(self) -> State:
        return State()


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=16_384)
    print(listening.getsockname()[1], flush=True)
    app = create_fastapi_app(Repeat, Said, Heard, max_concurrent_envs=int(sys.argv[1]))
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    main()

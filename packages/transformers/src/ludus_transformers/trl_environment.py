"""TRL's `environment_factory`: TRL generates and parses the tool calls, and our environment runs and judges them.

    environments = TrlEnvironments("workplace_assistant", input="train.jsonl")
    trainer = GRPOTrainer(
        model, environment_factory=environments.factory(), reward_funcs=environments.reward,
        train_dataset=environments.dataset(), ...
    )

The tokenizer needs a chat template that TRL knows how to parse. TRL's own loop makes the prompts and the masks; with
`TrlRollouts` Ludus does. A rollout that failed or is masked has the reward None.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections.abc import Callable
from typing import Any, Unpack

from ludus.collection.collection import Collection, Environments
from ludus.collection.options import CollectArguments, Options
from ludus.collection.player import Player
from ludus.dialects.chat_items import from_messages
from ludus.environment import Environment
from ludus.episode import Episode
from ludus.errors import UserError
from ludus.models.scripted import ScriptedModel
from ludus.outcome import Outcome
from ludus.rollout import Job, Rollout
from ludus.task import derive_seed, private
from ludus.train.rows import messages_of
from ludus_transformers.failed_steps import FailedSteps
from ludus_transformers.loading import library
from ludus_transformers.loop_thread import LoopThread

_TYPES = {"integer": int, "number": float, "string": str, "boolean": bool, "array": list, "object": dict}


class _Driven:
    """An agent that TRL drives: tool calls from a queue, then the messages of the whole completion."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.commands: asyncio.Queue[tuple[str, str, asyncio.Future[str]] | list[Any]] = asyncio.Queue()

    async def act(self, episode: Episode) -> str:
        self.opened.set()
        while not isinstance(command := await self.commands.get(), list):
            name, arguments, answer = command
            work = episode.call_tool(name, arguments)
            answer.set_result(await episode.step("tool", episode.limits.tool, work, f"tool `{name}`"))
        episode.say(*command)
        return "completed"


class _Playing:
    """One rollout that TRL drives."""

    def __init__(self, player: Player, job: Job) -> None:
        self._agent = _Driven()
        self._task = asyncio.create_task(player.play(player.episode(job), self._agent))

    async def open(self) -> None:
        opened = asyncio.create_task(self._agent.opened.wait())
        await asyncio.wait({opened, self._task}, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._agent.commands.put_nowait((name, json.dumps(arguments), answer))
        either: set[asyncio.Future[Any]] = {answer, self._task}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else "the rollout has failed"

    async def finish(self, messages: list[Any]) -> Rollout:
        self._agent.commands.put_nowait(list(from_messages(messages)))
        return await self._task

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


class TrlEnvironments:
    """Makes environments for TRL from one environment of Ludus. `options` are those of `ludus.collect`."""

    def __init__(self, environment: Environments = None, **options: Unpack[CollectArguments]) -> None:
        reading: CollectArguments = {**options, "model": ScriptedModel(["-"]), "output": None, "resume": False}
        collection = Collection(environment, Options(**reading))
        collection.rows.survey()
        self._rows = {task_id: row for task_id, row, _ in collection.rows}
        environments = collection.environments()
        if len(environments) != 1:
            raise UserError("environment_factory takes one environment here", "Name one, or use TrlRollouts")
        self._environment, self._seed = environments[0], collection.options.play.seed
        if self._environment.resources.by_group:
            cause = (
                f"{self._environment.name} judges a group as a whole (verify_group), and TRL plays rollouts one by one"
            )
            raise UserError(cause, "Use TrlRollouts")
        self._thread = LoopThread("ludus-trl-environments")
        self._stack = contextlib.AsyncExitStack()
        self._player = self._thread.run(self._open(self._environment))
        self._played = 0
        self._running: set[_Playing] = set()
        self._failed_steps = FailedSteps()
        self._closed = False

    def dataset(self) -> Any:
        """The tasks for the trainer: prompts as messages, and the id of the task."""
        rows = [{"prompt": messages_of(row), "task_id": name} for name, row in self._rows.items()]
        return library("datasets").Dataset.from_list(rows)

    def factory(self) -> type[Any]:
        """The class to pass as `environment_factory`: a method for each tool, and `reset`."""
        owner = self

        class TrlEnvironment:
            """One rollout at a time."""

            _playing: _Playing | None = None

            def reset(self, task_id: str, **_: Any) -> None:
                """Close the last rollout and open one of a task."""
                self._playing = owner._thread.run(owner._start(task_id, self._playing))

        for schema in self._schemas():
            setattr(TrlEnvironment, schema["name"], _method(schema, self._thread))
        return TrlEnvironment

    def reward(self, completions: list[Any], environments: list[Any], **_: Any) -> list[float | None]:
        """The reward function for the trainer."""
        rollouts = self._thread.run(_finish([environment._playing for environment in environments], completions))
        for environment in environments:
            self._running.discard(environment._playing)
            environment._playing = None
        failures = [rollout.error for rollout in rollouts if rollout.error is not None]
        self._failed_steps.add(failures, len(rollouts) - len(failures))
        return [rollout.reward if rollout.outcome is Outcome.COMPLETED else None for rollout in rollouts]

    def close(self) -> None:
        """Close the sessions in flight, and what the sessions share."""
        if not self._closed:
            self._closed = True
            self._thread.run(self._stop())
            self._thread.close()

    async def _stop(self) -> None:
        for playing in self._running:
            await playing.cancel()
        await self._stack.aclose()

    def _schemas(self) -> list[dict[str, Any]]:
        return self._environment.session(self._player.shared).tools()

    async def _open(self, environment: Environment) -> Player:
        enter = self._stack.enter_async_context
        shared, agent = await enter(environment.share()), await enter(environment.agent.share())
        return Player(environment, shared, agent, ScriptedModel(["-"], "trl"))

    async def _start(self, task_id: str, last: _Playing | None) -> _Playing:
        if last is not None:
            self._running.discard(last)
            await last.cancel()
        if task_id not in self._rows:
            raise UserError(f"a prompt names the unknown task {task_id!r:.80}", "Train on the dataset of this object")
        row, self._played = self._rows[task_id], self._played + 1
        seed, name = derive_seed(self._seed, task_id, self._played), f"{task_id}-{self._played}"
        task = self._environment.task(private(row))
        playing = _Playing(self._player, Job(name, task_id, self._played, task, row, 1, seed, self._environment.name))
        self._running.add(playing)
        await playing.open()
        return playing


async def _finish(playing: list[_Playing], completions: list[Any]) -> list[Rollout]:
    return await asyncio.gather(*(played.finish(said) for played, said in zip(playing, completions, strict=True)))


def _method(schema: dict[str, Any], thread: LoopThread) -> Callable[..., Any]:
    """A method with the signature and the docstring from which TRL makes the schema of a tool."""
    properties: dict[str, Any] = (schema.get("parameters") or {}).get("properties") or {}
    name: str = schema["name"]

    async def method(self: Any, **arguments: Any) -> str:
        return await thread.awaited(self._playing.call(name, arguments))

    types = {key: _TYPES.get(str(value.get("type")), str) for key, value in properties.items()}
    kind = inspect.Parameter.KEYWORD_ONLY
    required = (schema.get("parameters") or {}).get("required") or []
    defaults = {key: inspect.Parameter.empty if key in required else None for key in properties}
    parameters = [inspect.Parameter(key, kind, default=defaults[key], annotation=types[key]) for key in properties]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = inspect.Signature([own, *parameters], return_annotation=str)  # type: ignore[attr-defined]
    method.__annotations__ = {**types, "return": str}
    method.__name__ = name
    described = "\n".join(f"    {key}: {value.get('description') or key}" for key, value in properties.items())
    about = schema.get("description") or name
    method.__doc__ = f"{about}\n\nArgs:\n{described}\n\nReturns:\n    What the tool says.\n" if described else about
    return method

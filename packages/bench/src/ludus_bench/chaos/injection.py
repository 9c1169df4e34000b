"""Faults in what a process plays with: its model, and the tools and verifiers of its environments."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from functools import partial
from typing import Any, Self

from ludus.agents.simulated_user import is_users
from ludus.collection.progress import Mark
from ludus.environment import Environment
from ludus.errors import Failure
from ludus.game import Game, Step
from ludus.model import Model, Request, ServerLoad
from ludus.resources import Resources
from ludus.response import Response
from ludus_bench.chaos.rates import Chaos


class Injector:
    """Injects faults into a model and into environments. Each one is noted in `marks`."""

    def __init__(self, chaos: Chaos, marks: list[Mark]) -> None:
        self.chaos, self._marks = chaos, marks
        self._environments: dict[str, Environment] = {}

    @classmethod
    def parsed(cls, text: str, marks: list[Mark]) -> Self:
        """The faults that `--chaos` names, for a worker process."""
        return cls(Chaos.parse(text), marks)

    def strikes(self, fault: str, *place: Any, seed: int | None = None) -> bool:
        """Whether a fault happens at a place. `seed` is that of the rollout which it must fail."""
        if not self.chaos.strikes(fault, *place):
            return False
        self._marks.append((fault, seed))
        return True

    def model(self, model: Model) -> Model:
        """The model, whose calls fail now and then."""
        return ChaosModel(model, self)

    def environment(self, environment: Environment) -> Environment:
        """The environment with sessions whose tools hang and whose verifier fails now and then."""
        known = self._environments.get(environment.name)
        if known is None:
            known = replace(environment, resources=_faulty(environment.resources, self))
            self._environments[environment.name] = known
        return known


def _of_model(name: str) -> Any:
    """An attribute of the wrapped model."""
    return property(
        lambda wrapper: getattr(wrapper._model, name), lambda wrapper, value: setattr(wrapper._model, name, value)
    )


class ChaosModel(Model):
    """A model whose calls fail now and then. The calls of a simulated user are left alone."""

    def __init__(self, model: Model, injector: Injector) -> None:
        self._model, self._injector = model, injector
        self.name, self.config = model.name, model.config
        self.connects, self.concurrency = model.connects, model.concurrency

    capture_tokens = _of_model("capture_tokens")
    policy_version = _of_model("policy_version")
    observer = _of_model("observer")

    async def respond(self, request: Request) -> Response:
        """Answer one request, or fail."""
        strikes, place = partial(self._injector.strikes, seed=request.seed), (request.session, request.turn)
        if not is_users(request):
            if strikes("model_500", *place):
                raise Failure("http_500", "chaos: the model answered 500")
            if strikes("model_hang", *place):
                await asyncio.Event().wait()
            if strikes("model_abort", *place):
                return Response.of(model=self.name, status="incomplete", incomplete_details={"reason": "abort"})
        return await self._model.respond(request)

    def forget(self, session: str) -> None:
        """A rollout is over."""
        self._model.forget(session)

    async def server_loads(self) -> list[ServerLoad | None]:
        """What the servers of the model say."""
        return await self._model.server_loads()

    def settings(self) -> dict[str, Any]:
        """The settings of the model."""
        return self._model.settings()

    def stats(self) -> dict[str, Any]:
        """The statistics of the model."""
        return self._model.stats()

    async def __aenter__(self) -> Self:
        await self._model.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._model.__aexit__(*exc)


def _faulty(kind: type[Resources], injector: Injector) -> type[Resources]:
    async def maybe_hang(session: Any) -> None:
        session._chaos_calls = getattr(session, "_chaos_calls", 0) + 1
        if injector.strikes("tool_hang", session._seed, session._chaos_calls, seed=session._seed):
            await asyncio.Event().wait()

    def maybe_fail(session: Any) -> None:
        if injector.strikes("judge_down", session._seed, seed=session._seed):
            raise Failure("judge", "chaos: the judge is down")

    async def call(self: Any, name: str, arguments: str) -> str:
        await maybe_hang(self)
        return await kind.call(self, name, arguments)

    async def advance(self: Any, task: Any, response: Response) -> Step:
        await maybe_hang(self)
        return await kind.advance(self, task, response)  # type: ignore[attr-defined, no-any-return]

    members: dict[str, Any] = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    if injector.chaos.tool_hang:
        members |= {"advance": advance} if issubclass(kind, Game) else {"call": call} if kind.toolbox else {}
    if injector.chaos.judge_down:
        name = "verify_group" if kind.by_group else "verify"
        members[name] = _failing(getattr(kind, name), maybe_fail)
    return type(kind.__name__, (kind,), members)


def _failing(verify: Any, maybe_fail: Any) -> Any:
    """A verifier that fails now and then: plain or `async`, as it was."""
    if inspect.iscoroutinefunction(verify):

        async def verify_later(self: Any, task: Any, judged: Any) -> Any:
            maybe_fail(self)
            return await verify(self, task, judged)

        return verify_later

    def verify_now(self: Any, task: Any, judged: Any) -> Any:
        maybe_fail(self)
        return verify(self, task, judged)

    return verify_now

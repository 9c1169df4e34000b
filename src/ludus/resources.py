"""Resources: the tools, the state and the verifier of one rollout.

One instance serves one rollout and is thrown away: `self` is the session, so no state can leak between rollouts. A
model can call only the methods marked with `@tool`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self, TypeVar, overload

from pydantic import BaseModel, ConfigDict

from ludus.errors import Failure
from ludus.outcome import Verdict
from ludus.response import Response
from ludus.runtime.processes import in_process
from ludus.runtime.signatures import def_or_async, or_async
from ludus.runtime.threads import awaited
from ludus.task import Task
from ludus.tools import Tool, not_found

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

#: The kinds of parameter that `self` can be, and the kinds that a model can pass by name.
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class ResourcesConfig(BaseModel):
    """Settings of an environment's resources. Subclass it as `Config`. Unknown settings are refused."""

    model_config = ConfigDict(extra="forbid")

    #: Reproduce the reference implementation where it is known to be wrong (see the environment's README).
    compat: bool = False


@overload
def tool(function: F) -> F: ...
@overload
def tool(*, name: str) -> Callable[[F], F]: ...
def tool(function: F | None = None, *, name: str | None = None) -> F | Callable[[F], F]:
    """Offer a method to the model. The schema comes from the signature and the docstring.

        @tool
        async def get_weather(self, city: str) -> dict:
            \"\"\"Look up the weather of a city.\"\"\"

    A plain `def` runs on a thread. Arguments are checked before the method runs. Wrong arguments and exceptions become
    an error text that the model reads.
    """

    def mark(method: F) -> F:
        _check_tool(method)
        method.__ludus_tool__ = Tool(method, name or method.__name__)  # type: ignore[attr-defined]
        return method

    return mark(function) if function is not None else mark


class _ClassFact:
    """A fact about a class, computed on access, so that methods set later count too."""

    def __init__(self, find: Callable[[Any], bool]) -> None:
        self._find = find

    def __get__(self, instance: object, owner: type[Resources]) -> bool:
        return self._find(owner)


def _by_group(cls: type[Resources]) -> bool:
    return cls.verify_group is not Resources.verify_group


def _has_session(cls: type[Resources]) -> bool:
    methods = ("open", "close", "call", "tools")
    overridden = any(getattr(cls, name) is not getattr(Resources, name) for name in methods)
    return not cls.judged_by_response and (cls.by_turns or overridden or bool(cls.toolbox))


class Resources:
    """Base of every environment's resources. Override `verify`, and `open` and `close` if there is state.

    class Counter(Resources):
        async def open(self, task: Task) -> None:
            self.count = task.initial_count

        async def verify(self, task: Task, response: Response) -> float:
            return float(self.count == task.expected_count)
    """

    Task: ClassVar[type[Task]] = Task
    Config: ClassVar[type[ResourcesConfig]] = ResourcesConfig
    toolbox: ClassVar[dict[str, Tool]] = {}

    #: Whether all answers to a task are judged together, because `verify_group` is defined.
    by_group = _ClassFact(_by_group)

    #: Whether the model's answers are played turn by turn, as in a `Game`.
    by_turns: ClassVar[bool] = False

    #: Set this if a model plays the tools: they do not run again when a stored rollout is judged.
    judged_by_response: ClassVar[bool] = False

    #: Set this to False if running a rollout's tool calls again does not restore its session: turns are not saved.
    replays: ClassVar[bool] = True

    #: Set this if `verify` ends the session, so that it cannot be asked twice.
    verifies_once: ClassVar[bool] = False

    #: Whether a rollout has more than its text: something to open, to call, to play or to close.
    has_session = _ClassFact(_has_session)

    #: The digest of a verifier that runs on a server, as that server reports it; empty if it is not known.
    verifier: ClassVar[str | None] = None

    #: The settings. For the type checker, a subclass may write `config: Config`.
    config: Any

    #: Whether `seed` is the rollout's own. It is not if a record without its seed is replayed.
    seed_known: bool = True

    _seed: int = 0
    _used_seed: bool = False

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        self.config = config if config is not None else self.Config()
        self.shared = shared

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))  # in order of definition
        marks = (getattr(getattr(cls, name), "__ludus_tool__", None) for name in names)
        cls.toolbox = {entry.name: entry for entry in marks if entry is not None}
        for entry in (getattr(member, "__ludus_tool__", None) for member in vars(cls).values()):
            if entry is not None and entry.function is not cls.toolbox[entry.name].function:
                raise TypeError(f"{cls.__name__} has two tools called {entry.name}: use @tool(name=...)")
        for entry in cls.toolbox.values():
            if getattr(entry.function, "__name__", "") in vars(Resources):
                raise TypeError(f"{cls.__name__}.{entry.name} hides a method of Resources: use @tool(name=...)")

    @property
    def seed(self) -> int:
        """The seed for this rollout's random numbers. It is recorded."""
        self._used_seed = True
        return self._seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self._seed = seed

    @property
    def used_seed(self) -> bool:
        """Whether the session has read its seed, so that its state may depend on it."""
        return self._used_seed

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[Any]:
        """Open once what all rollouts of this process share (a pool, an index). It arrives as `self.shared`."""
        yield None

    @def_or_async
    async def open(self, task: Any) -> None:
        """Prepare the session for a task."""

    @def_or_async
    async def verify(self, task: Any, response: Response) -> float | Verdict:
        """Return a number, or a `Verdict` with named values. The default calls `verify_group` with one response."""
        if not self.by_group:
            raise TypeError(f"{type(self).__name__} does not define verify()")
        (verdict,) = await awaited(self.verify_group, task, [response])
        return verdict  # type: ignore[no-any-return]

    @def_or_async
    async def verify_group(self, task: Any, responses: list[Response]) -> list[float | Verdict]:
        """Judge all answers to a task together, for rewards that compare answers. Return one for each, in order.

        If you define this, a collection does not call `verify`. It calls `verify_group` once per task, when all repeats
        are done or have waited for `limits.group`. `self` was never opened: use only the task and the responses.
        """
        raise TypeError(f"{type(self).__name__} does not define verify_group()")

    @classmethod
    def application(cls, shared: Any, guard: Any) -> Any:
        """An ASGI application that serves these resources, behind the server's guard. None stands for ours."""
        return None

    @classmethod
    def row_problems(cls, config: Any, row: dict[str, Any]) -> list[tuple[str, str]]:
        """What `ludus data validate` reports about a row besides what its `Task` says: fields with reasons."""
        return []

    @classmethod
    def seconds_needed(cls, task: Any) -> dict[str, float]:
        """Seconds that a task allows by itself, by the names of `Limits`: a rollout's deadlines are no shorter."""
        return {}

    @classmethod
    async def run_metrics(cls, config: Any, rollouts: Iterable[Any]) -> dict[str, float]:
        """Figures of a whole run besides rewards and passes, from its completed and masked rollouts.

        They are computed once at the end of a collection, and stand in `metrics.json` under `own`.
        """
        return {}

    @def_or_async
    async def close(self) -> None:
        """Free what `open` acquired. Always awaited once `open` has started, even if `open` failed."""

    @or_async
    def fork(self) -> Self | Awaitable[Self]:
        """A second session in the same state, independent from then on. Both are closed.

        The default copies the attributes of `self`. A class with a `close` must define `fork` itself, if its sessions
        can be copied. `fork` may be `async def`.
        """
        if type(self).close is not Resources.close:
            cause = f"{type(self).__name__} defines close(), so the default fork() cannot copy it: define fork()"
            raise Failure("cannot_fork", cause)
        return self.copied()

    def copied(self, *fresh: str) -> Self:
        """A new instance with a deep copy of every attribute, except those named in `fresh`: `__init__` sets them.

        `config`, `shared` and the objects in `shared` are not copied, even if other attributes refer to them.
        """
        twin = type(self)(self.config, self.shared)
        memo = {id(part): part for part in (self.config, self.shared, *_parts(self.shared))} | {id(self): twin}
        for name, value in vars(self).items():
            if name not in ("config", "shared", *fresh):
                try:
                    setattr(twin, name, copy.deepcopy(value, memo))
                except Exception as error:
                    cause = f"{type(self).__name__}.{name} cannot be copied ({error}): define fork()"
                    raise Failure("cannot_fork", cause) from error
        return twin

    async def in_process(
        self,
        function: Callable[..., T],
        *args: Any,
        timeout: float = 60.0,  # noqa: ASYNC109
        cpu_seconds: float | None = None,
    ) -> T:
        """Run heavy or risky work in a warm child process, which is killed after `timeout` seconds.

        same = await self.in_process(compare_expressions, expected, answer, timeout=10.0)
        """
        return await in_process(function, *args, timeout=timeout, cpu_seconds=cpu_seconds)

    def tools(self) -> list[dict[str, Any]]:
        """The tools, in the format of the Responses API, for rows that do not list `tools` themselves."""
        return [entry.schema() for entry in self.toolbox.values()]

    async def call(self, name: str, arguments: str) -> str:
        """Run a tool with the arguments that the model wrote, and return the text that the model sees."""
        entry = self.toolbox.get(name)
        if entry is None:
            return not_found()
        return await entry.run(self, arguments, lenient=self.config.compat)


def _check_tool(method: Any) -> None:
    """Refuse a tool that a model could never call, when its class is defined."""
    if isinstance(method, (staticmethod, classmethod, property, type)) or not callable(method):
        raise TypeError(f"@tool is for a method, not for a {type(method).__name__}: write def name(self, ...)")
    parameters = list(inspect.signature(method).parameters.values())
    name = getattr(method, "__name__", "of this class")
    if not parameters or not _is_self(parameters[0]):
        raise TypeError(f"the tool {name} has no self: write def {name}(self, ...)")
    for parameter in parameters[1:]:
        if parameter.kind not in _NAMED:
            raise TypeError(f"the tool {name} takes {parameter}, which a model cannot name")


def _is_self(parameter: inspect.Parameter) -> bool:
    """Whether a first parameter is `self`. With another name and a type it is an argument, and `self` is missing."""
    untyped = parameter.annotation is parameter.empty
    return parameter.kind in _POSITIONAL and (parameter.name == "self" or untyped)


def _parts(shared: Any) -> Iterable[Any]:
    """The objects in `shared`: its values, its elements or its attributes."""
    if isinstance(shared, dict):
        return shared.values()
    if isinstance(shared, (list, tuple)):
        return shared
    return vars(shared).values() if hasattr(shared, "__dict__") else ()

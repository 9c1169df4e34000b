"""A task of the verifiers library while it is played here: its place, its tools and its record.

The tools of a task are programs of their own that speak MCP; they share the task's state through a server that
verifiers brings along. What they need is brought up with its own means and taken down with the rollout.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from ludus.errors import Failure, missing_extra

if TYPE_CHECKING:
    from ludus.integrations.verifiers_tasks import Scores, Source

#: The stages that verifiers knows, as kinds of ours.
_KINDS = {"ProviderError": "judge", "ToolsetError": "bad_tools", "SandboxError": "sandbox"}


def source(name: str, settings: dict[str, Any]) -> Source:
    """A taskset to play, checked as far as it can be before anything runs."""
    try:
        import verifiers.v1  # noqa: F401
    except ImportError as error:
        raise missing_extra("verifiers", "verifiers") from error
    from ludus.integrations.verifiers_tasks import Source, load
    from ludus.runtime.encoding import encode

    found = Source(name, encode(settings).decode())
    load(found)
    return found


@asynccontextmanager
async def shared_tools(source: Source) -> AsyncIterator[dict[str, Any]]:
    """The tools that all tasks of a taskset share, while this is entered."""
    from verifiers.v1.mcp import serve_shared

    from ludus.integrations.verifiers_tasks import load

    taskset = load(source)
    with classified():
        stack = AsyncExitStack()
        servers = await stack.enter_async_context(serve_shared(type(taskset).toolsets(taskset.config)))
    async with stack:
        yield servers


class World:
    """What one task needs: `open` it, play, `score` it, `close` it."""

    def __init__(self, source: Source, data: dict[str, Any], shared: dict[str, Any]) -> None:
        from ludus.integrations.verifiers_tasks import begin, needs_a_place, rebuild

        self._source, self._data, self._shared = source, data, shared
        with classified():
            self._task = rebuild(source, data)
            self._trace = begin(self._task)
            self._toolsets = type(self._task).toolsets(self._task.config)
            self.needs_a_place = needs_a_place(self._task)
        self._place: Any = None
        self._stack = AsyncExitStack()
        self._tools = AsyncExitStack()

    async def open(self) -> dict[str, str]:
        """Prepare everything. Returns the URLs of the servers that hold the task's tools, by name."""
        if not (self.needs_a_place or self._toolsets or self._shared):
            return {}
        from verifiers.v1.runtimes import SubprocessConfig, provision_runtime
        from verifiers.v1.utils.decorators import invoke

        with classified():
            place = provision_runtime(SubprocessConfig(), self._trace.id, self._task.runtime_env())
            self._place = await self._stack.enter_async_context(place)
            await self._place.prepare_setup()
            await invoke(self._task.setup, {"trace": self._trace, "runtime": self._place})
            return await self._serve_tools()

    async def score(self, prompt: list[dict[str, Any]], output: list[dict[str, Any]], in_process: Any) -> Scores:
        """Judge a conversation: in a child process, unless the task wants to look at its place for that."""
        from verifiers.v1.utils.decorators import invoke

        from ludus.integrations.verifiers_tasks import score, scores_of, write_down

        await self._tools.aclose()
        with classified():
            if not self.needs_a_place:
                state = self._trace.state.model_dump_json()
                found: Scores = await in_process(score, self._source, self._data, prompt, output, state, timeout=600.0)
                return found
            write_down(self._trace, prompt, output)
            await invoke(self._task.finalize, {"trace": self._trace, "runtime": self._place})
            await self._task.score(self._trace, self._place)
            return scores_of(self._trace)

    async def close(self) -> None:
        """Take everything down."""
        try:
            await self._tools.aclose()
        finally:
            await self._stack.aclose()

    async def _serve_tools(self) -> dict[str, str]:
        if not (self._toolsets or self._shared):
            return {}
        from verifiers.v1.clients import EvalClientConfig, ModelContext
        from verifiers.v1.interception import serve_interception
        from verifiers.v1.mcp import serve_tools
        from verifiers.v1.session import RolloutSession

        # The server that holds the state could also reach a model; nobody is told how.
        session = RolloutSession(ModelContext("none", EvalClientConfig()), self._trace)
        interception = serve_interception(None, self._place, session, self._toolsets, self._shared)
        base_url, _, secret = await self._tools.enter_async_context(interception)
        urls: dict[str, str] = await self._tools.enter_async_context(
            serve_tools(
                self._toolsets,
                self._place,
                shared=self._shared,
                state_secret=secret,
                state_route=self._trace.id,
                state_base=base_url,
            )
        )
        return urls


@contextmanager
def classified() -> Iterator[None]:
    """Turn the errors of verifiers into failures with a kind; others pass."""
    from verifiers.v1.errors import RolloutError

    try:
        yield
    except RolloutError as error:
        kind = _KINDS.get(type(error).__name__, "crash")
        raise Failure(kind, f"{type(error).__name__}: {error}") from error

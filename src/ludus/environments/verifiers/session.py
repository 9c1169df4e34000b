"""One rollout of a task of the verifiers library: the task's runtime, tools and trace.

A task's tools are MCP servers in processes of their own. They share the task's state through verifiers' interception
server. verifiers' own functions start all of these processes for a rollout and stop them after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from ludus.errors import Failure, missing_extra

if TYPE_CHECKING:
    from ludus.environments.verifiers.tasks import TaskScores, TasksetSource

#: The kind of failure for each class of verifiers' errors.
_KINDS = {"ProviderError": "judge", "ToolsetError": "bad_tools", "SandboxError": "sandbox"}


def checked_source(name: str, settings: dict[str, Any]) -> TasksetSource:
    """The source of a taskset that can be played here. Raises a `UserError` otherwise."""
    try:
        import verifiers.v1  # noqa: F401
    except ImportError as error:
        raise missing_extra("verifiers", "verifiers") from error
    from ludus.environments.verifiers.tasks import TasksetSource, load
    from ludus.runtime.encoding import encode

    source = TasksetSource(name, encode(settings).decode())
    load(source)
    return source


@asynccontextmanager
async def shared_tools(source: TasksetSource) -> AsyncIterator[dict[str, Any]]:
    """The servers of the tools that all tasks of a taskset share, which run while the context is open."""
    from verifiers.v1.mcp import serve_shared

    from ludus.environments.verifiers.tasks import load

    taskset = load(source)
    with errors_as_failures():
        stack = AsyncExitStack()
        servers = await stack.enter_async_context(serve_shared(type(taskset).toolsets(taskset.config)))
    async with stack:
        yield servers


class VerifiersSession:
    """One rollout of a task: `open` it, play, `score` it, `close` it."""

    def __init__(self, source: TasksetSource, data: dict[str, Any], shared: dict[str, Any]) -> None:
        from ludus.environments.verifiers.tasks import empty_trace, needs_runtime, task_of

        self._source, self._data, self._shared = source, data, shared
        with errors_as_failures():
            self._task = task_of(source, data)
            self._trace = empty_trace(self._task)
            self._toolsets = type(self._task).toolsets(self._task.config)
            self.needs_runtime = needs_runtime(self._task)
        self._runtime: Any = None
        self._stack = AsyncExitStack()
        self._tools = AsyncExitStack()

    async def open(self) -> dict[str, str]:
        """Start the runtime and the tools. Returns the URLs of the tools' MCP servers, by name."""
        if not (self.needs_runtime or self._toolsets or self._shared):
            return {}
        from verifiers.v1.runtimes import SubprocessConfig, provision_runtime
        from verifiers.v1.utils.decorators import invoke

        with errors_as_failures():
            runtime = provision_runtime(SubprocessConfig(), self._trace.id, self._task.runtime_env())
            self._runtime = await self._stack.enter_async_context(runtime)
            await self._runtime.prepare_setup()
            await invoke(self._task.setup, {"trace": self._trace, "runtime": self._runtime})
            return await self._serve_tools()

    async def score(self, prompt: list[dict[str, Any]], output: list[dict[str, Any]], in_process: Any) -> TaskScores:
        """Score a conversation, in a child process unless the task's scoring uses the runtime."""
        from verifiers.v1.utils.decorators import invoke

        from ludus.environments.verifiers.tasks import add_conversation, score, scores_of

        await self._tools.aclose()
        with errors_as_failures():
            if not self.needs_runtime:
                state = self._trace.state.model_dump_json()
                arguments = (self._source, self._data, prompt, output, state)
                scores: TaskScores = await in_process(score, *arguments, timeout=600.0)
                return scores
            add_conversation(self._trace, prompt, output)
            await invoke(self._task.finalize, {"trace": self._trace, "runtime": self._runtime})
            await self._task.score(self._trace, self._runtime)
            return scores_of(self._trace)

    async def close(self) -> None:
        """Stop the tools and the runtime."""
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

        # The interception server could also ask a model; this configuration gives it none.
        session = RolloutSession(ModelContext("none", EvalClientConfig()), self._trace)
        interception = serve_interception(None, self._runtime, session, self._toolsets, self._shared)
        base_url, _, secret = await self._tools.enter_async_context(interception)
        urls: dict[str, str] = await self._tools.enter_async_context(
            serve_tools(
                self._toolsets,
                self._runtime,
                shared=self._shared,
                state_secret=secret,
                state_route=self._trace.id,
                state_base=base_url,
            )
        )
        return urls


@contextmanager
def errors_as_failures() -> Iterator[None]:
    """Raise a verifiers error as a `Failure` with a kind."""
    from verifiers.v1.errors import RolloutError

    try:
        yield
    except RolloutError as error:
        kind = _KINDS.get(type(error).__name__, "crash")
        raise Failure(kind, f"{type(error).__name__}: {error}") from error

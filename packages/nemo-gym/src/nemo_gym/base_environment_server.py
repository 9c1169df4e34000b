"""The base class of environment servers, which play an episode from its request to its result or failure.

`run` of a subclass plays; the base admits, limits the time, releases what `run` registered, and turns errors into
failures.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from nemo_gym._cleanup import CleanupContext, CleanupHandle
from nemo_gym._simple_server import SimpleServer, fastapi
from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest, BaseRunServerInstanceConfig
from nemo_gym.episode_types import BaseEpisodeRequest, BaseEpisodeResponse, EpisodeFailure
from nemo_gym.rollout_correlation import rollout_context

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = [
    "BaseEnvironmentServer",
    "BaseEnvironmentServerConfig",
    "CleanupContext",
    "CleanupHandle",
    "HandledEpisodeError",
]

RequestT = TypeVar("RequestT", bound=BaseModel)
ResponseT = TypeVar("ResponseT", bound=BaseModel)

#: The characters of a reason that a failure keeps.
_REASON = 2000


class BaseEnvironmentServerConfig(BaseRunServerInstanceConfig):
    """The limits of an environment server. Without a number of episodes, all are admitted at once."""

    model_config = ConfigDict(extra="forbid")

    max_concurrent_episodes: int | None = Field(default=None, gt=0)
    queue_timeout_seconds: float | None = Field(default=None, gt=0)
    default_episode_timeout_seconds: float | None = Field(default=None, gt=0)
    cleanup_timeout_seconds: float = Field(gt=0)

    @model_validator(mode="after")
    def _queue_has_a_limit(self) -> BaseEnvironmentServerConfig:
        if self.max_concurrent_episodes is not None and self.queue_timeout_seconds is None:
            raise ValueError("max_concurrent_episodes needs queue_timeout_seconds: set how long an episode may wait")
        return self


class HandledEpisodeError(Exception):
    """Ends an episode with a failure that `run` has described."""

    def __init__(self, failure: EpisodeFailure) -> None:
        super().__init__(failure.failure_reason)
        self.failure = failure


class BaseEnvironmentServer(SimpleServer, Generic[RequestT, ResponseT]):
    """The base class of environment servers. Subclasses name their models and define `run`."""

    request_model: ClassVar[type[BaseModel]] = BaseEpisodeRequest
    response_model: ClassVar[type[BaseModel]] = BaseEpisodeResponse

    config: BaseEnvironmentServerConfig

    _places: asyncio.Semaphore | None = PrivateAttr(default=None)

    @abstractmethod
    async def run(self, request: RequestT, cleanup: CleanupContext) -> ResponseT:
        """Play an episode. What must be released at its end is registered in `cleanup`."""

    @abstractmethod
    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        """The metrics of rollouts."""

    def setup_webserver(self) -> FastAPI:
        """The application with the routes of every environment server, and a session for every request."""
        app: FastAPI = fastapi().FastAPI()
        self.setup_session_middleware(app)

        async def run(request: Any) -> Any:
            return await self.run_request(request)

        run.__annotations__ = {"request": self.request_model, "return": self.response_model}
        app.post("/run")(run)
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        return app

    async def run_request(self, request: RequestT) -> ResponseT:
        """Play an episode within the limits of the server. Only cancellation and a wrong id are raised."""
        asked: Any = request
        try:
            async with self._place():
                cleanup = CleanupContext(self.config.cleanup_timeout_seconds)
                with rollout_context(asked.episode_id.capture_key):
                    try:
                        response = await self._run_in_time(request, cleanup)
                    finally:
                        await _shielded(cleanup.aclose())
        except HandledEpisodeError as error:
            return self._failed(asked, error.failure)
        except Exception as error:
            reason = str(error) or type(error).__name__
            return self._failed(asked, EpisodeFailure(failure_reason=reason[:_REASON], terminal=True))
        answered: Any = response
        for name, wanted in (("episode_id", asked.episode_id), ("task_id", asked.task.task_id)):
            if getattr(answered, name) != wanted:
                raise ValueError(f"{self.config.name} answered with another {name}: {getattr(answered, name)!r}")
        return response

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """One of the places for episodes."""
        if self.config.max_concurrent_episodes is None:
            yield
            return
        if self._places is None:
            self._places = asyncio.Semaphore(self.config.max_concurrent_episodes)
        places, seconds = self._places, self.config.queue_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                await places.acquire()
        except TimeoutError:
            reason = f"no place for the episode within {seconds:g} s: raise max_concurrent_episodes or collect slower"
            failure = EpisodeFailure(failure_reason=reason, terminal=False, stage="admission")
            raise HandledEpisodeError(failure) from None
        try:
            yield
        finally:
            places.release()

    async def _run_in_time(self, request: RequestT, cleanup: CleanupContext) -> ResponseT:
        seconds = self.config.default_episode_timeout_seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await self.run(request, cleanup)
        except TimeoutError:
            if not limit.expired():
                raise
            reason = f"the episode timed out after {seconds:g} s"
            raise HandledEpisodeError(EpisodeFailure(failure_reason=reason, terminal=False)) from None

    def _failed(self, request: Any, failure: EpisodeFailure) -> ResponseT:
        """The response of a failure, which may be of the class that the subclass declares for it."""
        fields: Any = failure.model_dump() if type(failure) is EpisodeFailure else failure
        ids = {"episode_id": request.episode_id, "task_id": request.task.task_id}
        response: Any = self.response_model.model_validate({**ids, "failure": fields})
        return response  # type: ignore[no-any-return]


async def _shielded(work: Coroutine[Any, Any, None]) -> None:
    """Run work to its end, also if the caller is cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled

"""The base classes of servers that authors wrote for NeMo Gym: a pydantic model that makes a FastAPI application.

FastAPI and Starlette are imported when an application is made: code that only names the classes needs neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import signal
import sys
from abc import abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict

from ludus.errors import missing_extra
from ludus.http.listening import Listening, address, bind
from nemo_gym._client import ServerClient
from nemo_gym._errors import RolloutError
from nemo_gym._named_lines import NamedLines
from nemo_gym.config_types import ROLLOUT_PATH_PREFIX, BaseRunServerInstanceConfig
from nemo_gym.global_config import (
    NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME,
    RESULTS_DIR_KEY_NAME,
    get_first_server_config_dict,
    get_global_config_dict,
)

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Receive, Scope, Send

SESSION_ID_KEY = "session_id"
#: The key of a request's scope by which code of this process names the session. No client can set it.
SESSION_SCOPE_KEY = "nemo_gym.session_id"

#: Answered like `/`.
LIVENESS_PATHS = ("/", "/health", "/healthz", "/readyz", "/livez")


class BaseServer(BaseModel):
    """A server with a configuration. `ray_enabled` has no effect: Ludus starts no Ray for a server."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    ray_enabled: ClassVar[bool | None] = None

    config: BaseRunServerInstanceConfig

    @classmethod
    def load_config_from_global_config(cls) -> BaseRunServerInstanceConfig:
        """The configuration of the instance that the environment variable names, as the class of `config`."""
        name = os.environ[NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME]
        block = OmegaConf.to_container(get_first_server_config_dict(get_global_config_dict(), name), resolve=True)
        kind: Any = cls.model_fields["config"].annotation
        loaded: BaseRunServerInstanceConfig = kind.model_validate({**block, "name": name})  # type: ignore[dict-item]
        return loaded

    def setup_liveness(self, app: FastAPI) -> None:
        """Answer GET `/` and the paths that watchers ask."""

        async def alive() -> dict[str, str]:
            return {"status": "ok"}

        for path in LIVENESS_PATHS:
            app.get(path, include_in_schema=False)(alive)


class SimpleServer(BaseServer):
    """A server that is one FastAPI application, made by `setup_webserver`."""

    server_client: ServerClient

    @abstractmethod
    def setup_webserver(self) -> FastAPI:
        """The application."""

    def get_session_middleware_key(self) -> str:
        """The name and the secret of the session's cookie."""
        return f"{type(self).__name__}___{self.config.name}"

    def setup_session_middleware(self, app: FastAPI) -> None:
        """Give every request a session with an id. Does nothing if the application has sessions."""
        from starlette.middleware.sessions import SessionMiddleware

        kinds: list[Any] = [middleware.cls for middleware in app.user_middleware]
        if SessionMiddleware in kinds:
            return
        key = self.get_session_middleware_key()
        app.add_middleware(_SessionIds)
        app.add_middleware(SessionMiddleware, secret_key=key, session_cookie=key)

    def setup_exception_middleware(self, app: FastAPI) -> None:
        """Turn an exception of a handler into a reply of status 500 with its text."""
        app.add_middleware(_Exceptions, server_name=self.config.name)

    def setup_mcp(self, app: FastAPI) -> None:
        """Offer tools over MCP. Only resources servers have tools."""

    def set_ulimit(self, target_soft_limit: int = 65535) -> None:
        """Raise the limit of open files."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = target_soft_limit if hard == resource.RLIM_INFINITY else min(target_soft_limit, hard)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

    def setup_profiling(self, app: FastAPI, config: Any = None) -> None:
        """Profile the thread of the application while it runs. GET `/stats` writes what was counted so far.

        The profile is `NAME.prof` and `NAME.log` in `results_dir` of `config`, which defaults to the process's.
        """
        from starlette.responses import Response

        from nemo_gym.profiling import Profiler

        tree = config if config is not None else get_global_config_dict()
        name = re.sub(r"[\s/\\]", "_", self.config.name)
        profiler = Profiler(name=name, base_profile_dir=Path(str(tree.get(RESULTS_DIR_KEY_NAME) or ".")) / "profiles")
        inner = app.router.lifespan_context

        @contextlib.asynccontextmanager
        async def profiled(app: FastAPI) -> AsyncIterator[Any]:
            profiler.start()
            try:
                async with inner(app) as state:
                    yield state
            finally:
                profiler.stop()
                profiler.dump()

        async def stats(request: Any) -> Response:
            profiler.dump()
            return Response()

        app.router.lifespan_context = profiled
        app.add_route("/stats", stats, include_in_schema=False)

    def prefix_server_logs(self) -> None:
        """Put the name in brackets in front of every line of stdout and stderr."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if not isinstance(stream, NamedLines):
                setattr(sys, name, NamedLines(stream, self.config.name))

    @classmethod
    def run_webserver(cls) -> FastAPI | None:
        """Serve the instance that the environment variables describe until SIGINT or SIGTERM."""
        tree = get_global_config_dict()
        server = cls(
            config=cls.load_config_from_global_config(),
            server_client=ServerClient.model_construct(
                head_server_config=ServerClient.load_head_server_config(), global_config_dict=tree
            ),
        )
        if tree.get("dry_run"):
            return None
        server.set_ulimit()
        server.prefix_server_logs()
        app = application_of(server)
        if tree.get("profiling_enabled"):
            server.setup_profiling(app)
        asyncio.run(_serve(app, server.config))
        return app


def application_of(server: SimpleServer) -> FastAPI:
    """The application of a server as it is served: with MCP, liveness and replies for exceptions."""
    app = server.setup_webserver()
    _accept_rollouts_in_paths(app)
    server.setup_mcp(app)
    server.setup_liveness(app)
    server.setup_exception_middleware(app)
    return app


def _accept_rollouts_in_paths(app: FastAPI) -> None:
    """Let an application that an author made alone answer paths with a rollout in front of them, like ours."""
    from nemo_gym.rollout_correlation import RolloutContextMiddleware

    paths = [str(getattr(route, "path", "")) for route in app.routes]
    kinds: list[Any] = [middleware.cls for middleware in app.user_middleware]
    if RolloutContextMiddleware not in kinds and not any(path.startswith(f"/{ROLLOUT_PATH_PREFIX}/") for path in paths):
        app.add_middleware(RolloutContextMiddleware)


def fastapi() -> Any:
    """The module `fastapi`. Without it, an error says how to install it."""
    try:
        import fastapi
    except ModuleNotFoundError as error:
        raise missing_extra(
            "FastAPI, which servers written for NeMo Gym need,", "servers", package="nemo-gym"
        ) from error
    return fastapi


def own_middleware() -> list[Any]:
    """The middleware of sessions, which every application here has."""
    from starlette.middleware.sessions import SessionMiddleware

    return [SessionMiddleware, _SessionIds]


@contextlib.asynccontextmanager
async def lifespan(app: ASGIApp) -> AsyncIterator[None]:
    """Run the start-up code of an application, and its shutdown code at the end of the block."""
    received: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    sent: asyncio.Queue[Any] = asyncio.Queue()

    async def run() -> None:
        try:
            await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, received.get, sent.put)
        finally:
            await sent.put({"type": "ended"})

    running = asyncio.create_task(run())
    await received.put({"type": "lifespan.startup"})
    message = await sent.get()
    if message["type"] == "lifespan.startup.failed":
        raise RuntimeError(f"the server cannot start: {message.get('message', '')[-2000:]}")
    if message["type"] == "ended":
        await running  # raises what the application raised
    try:
        yield
    finally:
        await received.put({"type": "lifespan.shutdown"})
        await sent.get()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _serve(app: FastAPI, config: BaseRunServerInstanceConfig) -> None:
    from ludus_nemo_gym.hosted.cancelling import Cancelling

    listening = Listening(Cancelling(app), bind(config.name, config.host, config.port))
    async with lifespan(app):
        await listening.begin()
        print(f"{config.name} listens on {address(config.host, config.port)}", file=sys.stderr)
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        try:
            await stop.wait()
        finally:
            await listening.stop()


class _SessionIds:
    """Sets the id of the session before every handler: that of the cookie, or a new one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            session = scope["session"]
            session[SESSION_ID_KEY] = scope.get(SESSION_SCOPE_KEY) or session.get(SESSION_ID_KEY) or str(uuid4())
        await self._app(scope, receive, send)


class _Exceptions:
    """Replies to an exception of a handler with status 500 and its text as a JSON string."""

    def __init__(self, app: ASGIApp, server_name: str) -> None:
        self._app, self._name = app, server_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noting(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as error:
            if begun or scope["type"] != "http":
                raise
            from starlette.responses import JSONResponse

            await JSONResponse(self._text(error), status_code=500)(scope, receive, send)

    def _text(self, error: Exception) -> str:
        content = getattr(error, "response_content", None)
        if isinstance(content, bytes):
            inner = content.decode("utf-8", "replace")
            status = error.status if isinstance(error, RolloutError) else getattr(error, "status", "")
            return f"{self._name}: a server that it called replied with status {status}: {inner}"
        return repr(error)

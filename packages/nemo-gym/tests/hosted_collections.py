"""Small servers, and what their rollouts gave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ludus
from ludus import ScriptedModel

SAYS_YES = """
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float("yes" in body.response.output_text))
"""

SIMPLE = f"""
class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig
{SAYS_YES}
"""

NEEDS_SIZE = f"""
class Config(BaseResourcesServerConfig):
    size: int


class Server(SimpleResourcesServer):
    config: Config
{SAYS_YES}
"""


def collect(where: Any, script: Any, *, isolate: bool = False, settings: Any = None, **options: Any) -> Any:
    """Collect with fixed answers. Most servers run in this process, which is faster."""
    names = [path.name for path in (where if isinstance(where, list) else [where]) if isinstance(path, Path)]
    settings = {**{f"{name}.resources.isolate": isolate for name in names}, **(settings or {})}
    return ludus.collect(where, model=ScriptedModel(script), settings=settings, **options)


def rewards(results: Any) -> list[float]:
    """The rewards of the rollouts that have one."""
    return [rollout.reward for rollout in results.rollouts if rollout.reward is not None]


def with_tools(*names: str) -> str:
    """A server with some tools, which raise, refuse or answer in different ways."""
    routes = "\n".join(f'        app.post("/{name}")(self.{name})' for name in names)
    return f"""
class Body(BaseModel):
    count: int = 0
    text: str = ""


class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
{routes}
        return app

    async def asynchronous(self, body: Body) -> dict:
        return {{"doubled": 2 * body.count}}

    def plain(self, body: Body) -> dict:
        time.sleep(0.001)
        return {{"tripled": 3 * body.count}}

    async def raising(self, body: Body) -> dict:
        raise ValueError("no such number")

    async def refusing(self, body: Body) -> dict:
        raise HTTPException(status_code=404, detail="no such file")

    async def endless(self, body: Body) -> dict:
        await asyncio.Event().wait()

    async def blocking(self, body: Body) -> dict:
        time.sleep(3600)

    async def dying(self, body: Body) -> dict:
        print("out of luck", flush=True)
        os._exit(7)
{SAYS_YES}
"""


def outputs(rollout: Any) -> list[str]:
    return [item["output"] for item in rollout.response.output if item["type"] == "function_call_output"]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": arguments}

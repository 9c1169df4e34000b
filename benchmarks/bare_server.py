"""The floor for our servers: a bare Starlette application on uvicorn that does no work.

python benchmarks/bare_server.py          # prints its URL
"""

import orjson
import uvicorn
from large_response import response
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ludus.http.listening import bind

LARGE = response()


async def tool(request: Request) -> Response:
    """Read the request's body and answer with the bytes of a small tool output."""
    await request.body()
    return Response(b'{"success":true}', media_type="application/json")


async def large(request: Request) -> Response:
    """Encode a large answer for each request, as any server must."""
    await request.body()
    return Response(orjson.dumps(LARGE), media_type="application/json")


def main() -> None:
    routes = [Route("/increment_counter", tool, methods=["POST"]), Route("/v1/responses", large, methods=["POST"])]
    listening = bind("the bare server", "127.0.0.1", 0)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        Starlette(routes=routes), access_log=False, log_level="error", loop="uvloop", http="httptools"
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()

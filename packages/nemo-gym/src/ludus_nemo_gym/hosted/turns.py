"""One answer of an agent with sessions: what NeMo Gym's environment server `single_agent_turn` asks of it.

The agent opens a session with our id, answers the prompt, and closes the session. Nobody calls its `/run`: sessions of
the resources and the verdict are the episode's.
"""

from __future__ import annotations

import contextlib
from http.cookies import SimpleCookie
from typing import Any
from uuid import uuid4

from ludus.errors import Failure
from ludus.http.connection import HttpReply
from ludus.remote.http import ROLLOUT, Client
from ludus.runtime.encoding import encode
from ludus_nemo_gym.trees import Tree

_SESSIONS = "/v1/agent_sessions"


async def answer_in_session(
    client: Client, front: Tree, key: str, url: str, row: Tree, seeded: HttpReply | None
) -> Any:
    """The agent's response, as JSON.

    `front` is the block of the environment server, `key` the rollout's id at `url`, where its resources answer.
    `seeded` is the reply that began their session.
    """
    session = {"agent_session_id": uuid4().hex, "episode_id": {"rollout_id": key, "attempt": 0}}
    name = str((front.get("resources_server") or {}).get("name"))
    cookies = {"ludus": key, **(_cookies(seeded) if seeded is not None else {})}
    access = {"kind": "direct_http", "name": f"{name}.direct_http", "required": True, "base_url": url}
    wants_tools = "direct_http" in (front.get("resources_tool_transports") or ())
    seed = {
        **session,
        "task_id": {"taskset": name, "task_id": key},
        "tool_accesses": [{**access, "cookies": cookies}] if wants_tools else [],
    }
    headers = {ROLLOUT: key}
    opened = await client.post(_SESSIONS, encode(seed), headers)
    client.checked(opened)
    headers = {**headers, "cookie": "; ".join(f"{name}={value}" for name, value in _cookies(opened).items())}
    try:
        params = encode(row.get("responses_create_params") or {})
        return client.checked(await client.post(f"/ng-rollout/{key}/v1/responses", params, headers))
    finally:
        with contextlib.suppress(Failure):  # the answer is there, or its failure tells more
            await client.post(f"{_SESSIONS}/close", encode(session), headers)


def _cookies(reply: HttpReply) -> dict[str, str]:
    cookies: SimpleCookie = SimpleCookie()
    for header in reply.all("set-cookie"):
        cookies.load(header)
    return {name: morsel.value for name, morsel in cookies.items()}

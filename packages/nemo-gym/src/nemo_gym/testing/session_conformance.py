"""Checks that a resources server keeps the contract of sessions whose ids the caller chose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nemo_gym._simple_server import fastapi
from nemo_gym.base_resources_server import ResourcesSeedSessionRequest

if TYPE_CHECKING:
    from fastapi import FastAPI


def check_resources_session_contract(
    app: FastAPI, seed: ResourcesSeedSessionRequest | dict[str, Any], *, keeps_state: bool
) -> None:
    """Open and close sessions of an application as an impatient caller does; `AssertionError` if a reply is wrong.

    Seeding twice, closing twice and closing an id that was never seeded succeed and repeat the id. A server that
    `keeps_state` refuses to seed a closed id.
    """
    fastapi()
    from fastapi.testclient import TestClient

    body = ResourcesSeedSessionRequest.model_validate(seed).model_dump(mode="json")
    unseeded = {**body, "resources_session_id": f"{body['resources_session_id']}-never-seeded"}
    with TestClient(app, raise_server_exceptions=False) as client:
        for attempt in ("first", "repeated"):
            _succeeds(client, "/seed_session", body, f"the {attempt} seed")
        for attempt in ("first", "repeated"):
            _succeeds(client, "/close_session", _close(body), f"the {attempt} close")
        client.cookies.clear()
        _succeeds(client, "/close_session", _close(unseeded), "the close of an id that was never seeded")
        for late in (body, unseeded) if keeps_state else ():
            status = client.post("/seed_session", json=late).status_code
            session_id = late["resources_session_id"]
            assert status >= 400, f"a seed of {session_id!r} after its close replied {status}: it must be refused"


def _close(seed: dict[str, Any]) -> dict[str, Any]:
    return {"resources_session_id": seed["resources_session_id"], "episode_id": seed["episode_id"]}


def _succeeds(client: Any, path: str, body: dict[str, Any], what: str) -> None:
    reply = client.post(path, json=body)
    assert reply.status_code == 200, f"{what} replied {reply.status_code}: {reply.text[:500]}"
    session_id = reply.json().get("resources_session_id")
    wanted = body["resources_session_id"]
    assert session_id == wanted, f"{what} replied with the id {session_id!r} in place of {wanted!r}"

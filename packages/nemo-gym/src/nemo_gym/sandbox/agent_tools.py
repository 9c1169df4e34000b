"""What agents need whose program runs in a sandbox: URLs that it can reach, tools over MCP, and the verdict."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from nemo_gym.server_utils import get_response_json, get_server_url, raise_for_status


def sandbox_server_url(name: str, *, require_reachable: bool = False) -> str:
    """The address of a server. With `require_reachable`, one that only this machine can reach is a `ValueError`."""
    url = get_server_url(name)
    if require_reachable and _only_local(host := str(urlsplit(url).hostname)):
        raise ValueError(f"a sandbox cannot reach server {name} at {host}: set default_host to this machine's address")
    return url


def restricted_network_policy(provider_name: str, urls: Iterable[str]) -> dict[str, Any]:
    """A policy that lets a sandbox reach the hosts of these URLs only. Only `opensandbox` has such policies."""
    if provider_name != "opensandbox":
        raise ValueError(f"sandbox provider {provider_name} has no network policies: only opensandbox has")
    hosts = [urlsplit(url).hostname for url in urls]
    if None in hosts:
        raise ValueError("a network policy needs absolute URLs")
    allowed = [{"action": "allow", "target": host} for host in dict.fromkeys(hosts)]
    return {"default_action": "deny", "egress": allowed}


async def seed_mcp_servers(
    client: Any,
    servers: Iterable[Any],
    body: Any,
    cookies: Mapping[str, Any] | None,
    *,
    timeout_s: float,
    require_reachable: bool = False,
) -> dict[str, dict[str, Any]]:
    """Start a session at each resources server, and return how its tools are reached: `{name: {url, headers, ...}}`.

    `servers` are names or references. The cookies of the replies are added to `cookies`, for the verdict.
    """
    reached: dict[str, dict[str, Any]] = {}
    for server in servers:
        name = _name(server)
        reply = await client.post(server_name=name, url_path="/seed_session", json=body, cookies=dict(cookies or {}))
        await raise_for_status(reply)
        seeded = await get_response_json(reply)
        access = seeded.get("mcp") or seeded.get("resources_tools")
        if not access:
            raise ValueError(f"server {name} offers no tools over MCP: set expose_tools_over_mcp: true in its block")
        if isinstance(cookies, MutableMapping) and isinstance(reply.cookies, Mapping):
            cookies.update({key: getattr(value, "value", value) for key, value in reply.cookies.items()})
        reached[name] = {
            "url": sandbox_server_url(name, require_reachable=require_reachable) + str(access.get("url_path", "/mcp")),
            "headers": dict(access.get("headers") or {}),
            "enabled": True,
            "timeout": timeout_s,
        }
    return reached


async def verify_agent_response(
    client: Any, server: Any, body: Any, response: Any, cookies: Mapping[str, Any] | None, *, force_zero_reward: bool
) -> dict[str, Any]:
    """The verdict of a resources server about a response.

    With `force_zero_reward` the response is verified without its output, and `ValueError` is raised unless that scores
    an unmasked 0: a failed agent must not earn a reward for what it left behind.
    """
    name = _name(server)
    answer = _plain(response)
    request = {**_plain(body), "response": {**answer, "output": []} if force_zero_reward else answer}
    reply = await client.post(server_name=name, url_path="/verify", json=request, cookies=dict(cookies or {}))
    await raise_for_status(reply)
    verdict: dict[str, Any] = await get_response_json(reply)
    if force_zero_reward and (verdict.get("reward") != 0 or verdict.get("mask_sample")):
        masked = " (masked)" if verdict.get("mask_sample") else ""
        raise ValueError(f"server {name} scored an empty output {verdict.get('reward')}{masked}, not 0")
    return verdict


def _name(server: Any) -> str:
    return server if isinstance(server, str) else str(server["name"] if isinstance(server, Mapping) else server.name)


def _plain(value: Any) -> dict[str, Any]:
    return value.model_dump() if isinstance(value, BaseModel) else dict(value)


def _only_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified

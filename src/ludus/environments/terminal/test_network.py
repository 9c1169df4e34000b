"""The network of a task: open for its set-up, to hosts that the task and the operator name, and closed afterwards."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ludus import ScriptedModel, collect
from ludus.testing import needs_sandbox

NAME = "terminal"

#: Addresses of this machine that programs do not take for their own loopback.
HOST, OTHER = "127.9.9.9", "127.9.9.8"

FETCH = "python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=10).read().decode())'"
VERDICT = """
if grep -qx 'hello from the host' /app/fetched && [ ! -s /app/other ] && [ ! -s /app/later ] && ! {fetch} {url}
then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello from the host")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    """The ports of two servers: one at the address that a task may reach, one at another."""
    servers = [http.server.ThreadingHTTPServer((host, 0), Hello) for host in (HOST, OTHER)]
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    yield servers[0].server_address[1], servers[1].server_address[1]
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        server.server_close()
        thread.join()


def row(ports: tuple[int, int], **ludus: Any) -> dict[str, Any]:
    """A task whose set-up fetches a page from two hosts, and whose test script tries it again."""
    url, other = f"http://{HOST}:{ports[0]}/", f"http://{OTHER}:{ports[1]}/"
    return {
        "responses_create_params": {"input": "Fetch the page again."},
        "config": {"version": "1.0", "ludus": {"setup_hosts": [f"{HOST}:{ports[0]}"], **ludus}},
        "environment": {"setup.sh": f"{FETCH} {url} > fetched\n{FETCH} {other} > other || true\n"},
        "tests": {"test.sh": VERDICT.format(fetch=FETCH, url=url)},
    }


def collected(ports: tuple[int, int], task_row: dict[str, Any], *allowed: str) -> tuple[Any, str]:
    """The rollout of a model that fetches the page, and what it saw."""
    command = f"{FETCH} http://{HOST}:{ports[0]}/ > later; cat fetched later"
    model = ScriptedModel([{"call": "bash", "arguments": {"command": command}}, "Done."])
    (rollout,) = collect(NAME, model=model, input=[task_row], settings={"resources.allowed_hosts": [*allowed]}).rollouts
    response = json.loads(rollout.encode())["response"] or {}
    outputs = [item["output"] for item in response.get("output", []) if "output" in item]
    return rollout, json.loads(outputs[0])["output"] if outputs else ""


@needs_sandbox()
def test_a_task_reaches_its_host_and_no_other_while_it_is_prepared_and_none_afterwards(ports: tuple[int, int]) -> None:
    rollout, seen = collected(ports, row(ports), f"{HOST}:{ports[0]}")
    assert rollout.error is None, rollout.error
    assert seen.startswith("hello from the host")
    assert "URLError" in seen
    assert rollout.reward == 1.0


@needs_sandbox()
def test_a_task_may_say_that_the_model_reaches_the_host_too(ports: tuple[int, int]) -> None:
    host = f"{HOST}:{ports[0]}"
    _, seen = collected(ports, row(ports, agent_hosts=[host]), host)
    assert seen.count("hello from the host") == 2


@needs_sandbox()
def test_a_host_that_the_operator_did_not_allow_is_refused_with_the_setting(ports: tuple[int, int]) -> None:
    rollout, _ = collected(ports, row(ports))
    assert (rollout.error.stage, rollout.error.kind) == ("open", "bad_row")
    assert f"wants to reach {HOST}:{ports[0]}: allow that with --set 'resources.allowed_hosts=" in rollout.error.cause

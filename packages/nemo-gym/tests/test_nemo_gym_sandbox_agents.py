"""What agents in sandboxes import: the process supervisor, and the tools that reach servers from inside."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from nemo_gym.config_types import ResourcesServerRef
from nemo_gym.sandbox import process_supervisor
from nemo_gym.sandbox.agent_tools import (
    restricted_network_policy,
    sandbox_server_url,
    seed_mcp_servers,
    verify_agent_response,
)
from nemo_gym.sandbox.process_supervisor import exec_timeout
from nemo_gym.server_utils import ServerClient
from waiting import is_running, until

SUPERVISOR = Path(process_supervisor.__file__)


def started(tmp_path: Path, *options: str, command: str) -> subprocess.Popen[str]:
    """The supervisor as a sandbox runs it: the file alone, with any Python."""
    words = [sys.executable, "-I", str(SUPERVISOR), "--receipt", str(tmp_path / "receipt.json")]
    return subprocess.Popen(
        [*words, *options, "--", "sh", "-c", command], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )


def receipt(tmp_path: Path, process: subprocess.Popen[str]) -> dict[str, Any]:
    """What the supervisor wrote at its end."""
    process.communicate(timeout=60)
    content: dict[str, Any] = json.loads((tmp_path / "receipt.json").read_text())
    return content


def content(path: Path) -> str:
    """The text of a file that a command will write."""
    until(path.exists)
    return path.read_text()


#: A daemon: a session of its own, whose parent has ended.
DAEMON = "(setsid sh -c 'echo $$ > new; mv new pid; exec sleep 600' &) ; while [ ! -e pid ]; do :; done; "


def test_the_supervisor_imports_the_standard_library_only():
    tree = ast.parse(SUPERVISOR.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names


def test_a_command_that_ends_leaves_a_receipt_and_no_daemon(tmp_path: Path):
    process = started(tmp_path, "--timeout", "60", command=f"{DAEMON} echo out; exit 3")
    assert receipt(tmp_path, process) == {
        "cleanup_confirmed": True,
        "return_code": 3,
        "error": None,
        "timed_out": False,
    }
    assert process.returncode == 3
    assert not is_running(int((tmp_path / "pid").read_text()))
    assert sorted(os.listdir(tmp_path)) == ["pid", "receipt.json"]


def test_a_late_command_is_ended_with_all_that_it_started(tmp_path: Path):
    process = started(
        tmp_path, "--timeout", "0.2", "--cleanup-timeout", "0.1", command="trap '' TERM; sleep 600 & wait"
    )
    written = receipt(tmp_path, process)
    assert (written["timed_out"], written["return_code"], written["cleanup_confirmed"]) == (True, 124, True)


@pytest.mark.parametrize("how", ["stop file", "signal"])
def test_a_supervisor_that_is_told_to_stop_ends_everything(tmp_path: Path, how: str):
    process = started(
        tmp_path, "--timeout", "600", "--stop-file", str(tmp_path / "stop"), command=f"{DAEMON} sleep 600"
    )
    pid = int(content(tmp_path / "pid"))
    if how == "stop file":
        (tmp_path / "stop").touch()
    else:
        process.send_signal(signal.SIGTERM)
    written = receipt(tmp_path, process)
    assert (written["error"], written["timed_out"], written["cleanup_confirmed"]) == (
        *("stopped before its end", False, True),
    )
    assert not is_running(pid)


def test_a_command_that_cannot_start_is_named(tmp_path: Path):
    words = [
        sys.executable,
        str(SUPERVISOR),
        "--timeout",
        "5",
        "--receipt",
        str(tmp_path / "r"),
        "--",
        "no-such-program",
    ]
    assert subprocess.run(words, check=False).returncode == 127
    assert (
        json.loads((tmp_path / "r").read_text())["error"] == "cannot start no-such-program: No such file or directory"
    )


def test_the_sandbox_gives_the_supervisor_time_to_clean_up():
    assert exec_timeout(timeout=100) == 160
    assert exec_timeout(timeout=100, cleanup_timeout=1) == 133


# --- tools of agents ---


def reply(body: Any, **cookies: str) -> MagicMock:
    answer = MagicMock(ok=True, cookies=cookies)
    answer.read = AsyncMock(return_value=json.dumps(body).encode())
    return answer


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    block = "{entrypoint: app.py, host: %s, port: 9000}"
    servers = {"near": "127.0.0.1", "far": "10.0.0.7", "any": "0.0.0.0"}
    lines = [f"{name}: {{resources_servers: {{x: {block % host}}}}}" for name, host in servers.items()]
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", "\n".join(lines))
    mock = MagicMock(spec=ServerClient)
    mock.post = AsyncMock()
    return mock


def test_a_server_that_only_this_machine_reaches_is_refused_for_sandboxes_elsewhere(client: MagicMock):
    assert sandbox_server_url("near") == "http://127.0.0.1:9000"
    assert sandbox_server_url("far", require_reachable=True) == "http://10.0.0.7:9000"
    for name in ("near", "any"):
        with pytest.raises(ValueError, match=f"cannot reach server {name} .*set default_host"):
            sandbox_server_url(name, require_reachable=True)


def test_a_network_policy_allows_the_hosts_of_urls_only():
    policy = restricted_network_policy("opensandbox", ["http://10.0.0.7:9000/mcp", "http://10.0.0.7/", "https://a.b/c"])
    assert [rule["target"] for rule in policy["egress"]] == ["10.0.0.7", "a.b"]
    assert policy["default_action"] == "deny"
    with pytest.raises(ValueError, match="sandbox provider docker has no network policies"):
        restricted_network_policy("docker", [])


async def test_seeding_gives_the_urls_and_headers_of_tools(client: MagicMock):
    access = {"server_name": "x", "url_path": "/mcp", "transport": "http", "headers": {"X-Token": "t"}}
    client.post.side_effect = [reply({"mcp": access}, session="s1"), reply({"resources_tools": access})]
    cookies = {"agent": "a"}
    near = ResourcesServerRef(type="resources_servers", name="near")
    reached = await seed_mcp_servers(client, ["far", near], {"q": 1}, cookies, timeout_s=9)
    assert reached["far"] == {
        "url": "http://10.0.0.7:9000/mcp",
        "headers": {"X-Token": "t"},
        "enabled": True,
        "timeout": 9,
    }
    assert set(reached) == {"far", "near"}
    assert cookies == {"agent": "a", "session": "s1"}
    assert client.post.call_args_list[0].kwargs == {
        "server_name": "far",
        "url_path": "/seed_session",
        "json": {"q": 1},
        "cookies": {"agent": "a"},
    }


async def test_a_server_without_tools_over_mcp_is_named(client: MagicMock):
    client.post.return_value = reply({})
    with pytest.raises(ValueError, match="server far offers no tools over MCP: set expose_tools_over_mcp"):
        await seed_mcp_servers(client, ["far"], {}, {}, timeout_s=1)


async def test_a_response_is_verified_as_it_is(client: MagicMock):
    client.post.return_value = reply({"reward": 1.0})
    response = {"output": ["x"], "id": "r"}
    verdict = await verify_agent_response(client, "far", {"q": 1}, response, {"c": "1"}, force_zero_reward=False)
    assert verdict == {"reward": 1.0}
    assert client.post.call_args.kwargs["json"] == {"q": 1, "response": response}


async def test_a_failed_agent_is_verified_without_its_output_and_must_score_zero(client: MagicMock):
    client.post.return_value = reply({"reward": 0.0})
    await verify_agent_response(client, "far", {}, {"output": ["x"]}, None, force_zero_reward=True)
    assert client.post.call_args.kwargs["json"] == {"response": {"output": []}}
    for verdict in ({"reward": 0.5}, {"reward": 0.0, "mask_sample": True}):
        client.post.return_value = reply(verdict)
        with pytest.raises(ValueError, match="server far scored an empty output .*, not 0"):
            await verify_agent_response(client, "far", {}, {"output": []}, None, force_zero_reward=True)

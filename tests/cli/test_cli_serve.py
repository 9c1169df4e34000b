"""`ludus serve` and `ludus status` as a user types them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import forked
import interruptible
import psutil
import pytest
from serving import COUNTER, COUNTER_ROW, TESTS_PATH, Web
from waiting import CEILING

COMMAND = [sys.executable, "-m", "ludus", "serve", COUNTER, "--model", "scripted:serving:count_to_three"]


@contextmanager
def serve(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": TESTS_PATH, "COLUMNS": "100"}
    process = interruptible.start(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr.read() if process.stderr else ""
    found: dict[str, Any] = json.loads(line)
    return found


def ludus(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    words, environment = [sys.executable, "-m", "ludus", *arguments], {**os.environ, **variables}
    return forked.run(words, capture_output=True, text=True, timeout=CEILING, env=environment)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_server_leaves_no_process_behind(how: signal.Signals):
    with serve("--json", "--head-port", "0", "--workers", "2") as process:
        urls = {each["name"]: each["url"] for each in ready(process)["servers"]}
        assert Web(urls[f"{COUNTER}_simple_agent"]).post("/run", COUNTER_ROW).json()["reward"] == 1.0
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2
        process.send_signal(how)
        _, said = process.communicate(timeout=CEILING)
        assert process.returncode == 0
        assert said.endswith("stopped: all sessions are closed\n")
        _, alive = psutil.wait_procs(children, timeout=CEILING)
        assert not alive


def test_workers_end_when_their_supervisor_is_killed():
    with serve("--json", "--head-port", "0", "--workers", "2") as process:
        ready(process)
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        _, alive = psutil.wait_procs(children, timeout=CEILING)
        assert not alive


def test_without_json_the_addresses_are_a_table():
    with serve("--head-port", "0") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        assert lines[0].split() == ["server", "kind", "address"]
        assert [line.split()[1] for line in lines[1:]] == ["head", "resources", "agent", "model"]


def test_status_lists_the_servers_and_fails_if_none_run():
    with serve("--json", "--head-port", "0") as process:
        head = ready(process)["servers"][0]["url"]
        found = json.loads(ludus("status", head, "--json").stdout)
        assert [server["status"] for server in found["servers"]] == ["ok", "ok", "ok"]
        narrow = ludus("status", head, COLUMNS="40").stdout
        for server in found["servers"]:
            assert any({server["name"], server["url"], "ok"} <= set(line.split()) for line in narrow.splitlines())
    gone = ludus("status", head)
    assert gone.returncode == 2
    assert gone.stderr.count("\n") == 1
    assert "ludus serve ENV" in gone.stderr


@pytest.mark.parametrize(("option", "server"), [("--head-port", "the head"), ("--port", COUNTER)])
def test_a_port_in_use_is_one_line_that_names_the_option(option: str, server: str):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serve("--head-port", "0", option, str(port)) as process:
            _, said = process.communicate(timeout=CEILING)
    assert process.returncode == 2
    assert said == (
        f"error: {server} cannot listen on 127.0.0.1:{port}: Address already in use. "
        f"Choose another port with {option}; 0 takes a free one\n"
    )


def test_a_host_of_another_machine_is_one_line_that_names_the_option():
    found = ludus("serve", COUNTER, "--host", "192.0.2.1", "--head-port", "0", LUDUS_TOKEN="a-token-for-tests-only")
    assert found.returncode == 2
    assert found.stderr.startswith("error: the head cannot listen on 192.0.2.1:0: ")
    assert found.stderr.endswith(". Correct --host\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "error: unknown environment nothing."),
        (["sandbox", COUNTER], "error: ludus serve sandbox serves sandboxes and no environment. Start two servers:"),
        ([COUNTER, "--set", "resources.colour=red"], "error: resources has no setting colour."),
        ([COUNTER, "--model", "scripted:nowhere.yaml", "--workers", "2"], "error: cannot read script nowhere.yaml"),
        ([COUNTER, "--host", "0.0.0.0"], "error: listening on 0.0.0.0 needs a token."),
    ],
)
def test_a_user_error_is_one_line(arguments: list[str], said: str):
    found = ludus("serve", *arguments, "--head-port", "0")
    assert found.returncode == 2
    assert found.stderr.startswith(said)
    assert found.stderr.count("\n") == 1

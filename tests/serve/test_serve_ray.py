"""`ludus serve --ray`: environments as a Ray Serve deployment, with sessions that stay where they are."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from ray_runs import shared_cluster, stop_cluster
from serving import COUNTER_ROW, Web
from waiting import CEILING

import ludus

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

ENVIRONMENT = "example_session_state_mgmt"


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The URLs of the servers by name, with two replicas."""
    folder = tmp_path_factory.mktemp("serve")
    (folder / "script.yaml").write_text("- call: increment_counter\n  arguments: {count: 4}\n- done\n")
    with shared_cluster() as cluster:
        cluster.add_node(num_cpus=4)
        command = [
            *(sys.executable, "-m", "ludus", "serve", ENVIRONMENT, "--model", f"scripted:{folder / 'script.yaml'}"),
            *("--ray", cluster.address, "--workers", "2", "--json"),
        ]
        with (folder / "serve.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (folder / "serve.log").read_text()
            yield {each["name"]: each["url"] for each in json.loads(line)["servers"]}
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=CEILING)
        assert "stopped: all sessions are closed" in (folder / "serve.log").read_text()
    stop_cluster()


def test_a_session_always_reaches_the_replica_that_holds_it(urls):
    held: dict[str, list[Web]] = {}
    for _ in range(24):
        web = Web(urls[ENVIRONMENT])
        name = web.post("/seed_session", COUNTER_ROW).headers["x-ludus-session"]
        held.setdefault(name.partition(".")[0], []).append(web)
    assert len(held) == 2
    for webs in held.values():
        for number, web in enumerate(webs, 1):
            for _ in range(3):
                assert web.post("/increment_counter", {"count": number}).json() == {"success": True}
            assert web.post("/get_counter_value", {}).json()["count"] == COUNTER_ROW["initial_count"] + 3 * number
            assert web.post("/close_session", {}).json() == {"closed": True}


def test_a_session_of_a_replica_that_never_was_is_lost_and_an_unknown_server_is_named(urls):
    web = Web(urls[ENVIRONMENT])
    lost = web.post("/get_counter_value", {}, headers={"x-ludus-session": "77.abc"})
    assert (lost.status, lost.json()["kind"]) == (410, "session_lost")
    assert Web(urls[ENVIRONMENT] + "x").post("/verify", {}).status == 404


def test_a_collection_plays_on_the_agent_of_the_deployment(urls, tmp_path):
    result = ludus.collect(
        ENVIRONMENT, agent=urls[f"{ENVIRONMENT}_simple_agent"], input=[COUNTER_ROW] * 6, output=tmp_path / "out"
    )
    assert result.metrics["counts"]["completed"] == 6

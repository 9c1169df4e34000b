"""The unmodified `nemo_gym` taskset of PyPI's verifiers uses our resources servers over HTTP.

verifiers is installed in its own virtual environment, which `make interop` makes. uv runs the script of its harness.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import COUNTER, COUNTER_ROW, Web, served, url_of
from waiting import CEILING

from ludus.environment import Environment
from ludus.serve.serving import Serving

INTEROP = Path(os.environ.get("LUDUS_INTEROP_VENV") or Path(__file__).parents[2] / ".venv-interop").absolute()

pytestmark = pytest.mark.slow


def environment() -> dict[str, str]:
    """The environment variables of a user without any account."""
    # PYTHON*: bytecode must be written, since several processes import many modules
    dropped = ("PRIME_", "LUDUS_", "PYTHON")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    return {**kept, "PATH": f"{INTEROP / 'bin'}{os.pathsep}{kept['PATH']}", "POLICY_KEY": "none"}


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=CEILING, check=False
    )


@pytest.fixture(scope="module")
def vf_eval(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of `vf-eval`. Skips the test unless uv can install the dependencies of its harness."""
    if not (INTEROP / "bin" / "vf-eval").exists():
        pytest.skip(f"verifiers is not installed in {INTEROP}: make interop")
    folder = tmp_path_factory.mktemp("harness")
    (source,) = INTEROP.glob("lib/python*/site-packages/verifiers/v1/harnesses/utils/launch.py")
    needs = re.findall(r"# dependencies = \[.*\]", source.read_text())
    (folder / "program.py").write_text("\n".join(["# /// script", *needs, "# ///"]))
    synced = run("uv", "sync", "--quiet", "--no-config", "--script", "program.py", folder=folder)
    if synced.returncode != 0:
        pytest.skip(f"uv cannot install what the harness of verifiers needs: {synced.stderr.strip()[-200:]}")
    return str(INTEROP / "bin" / "vf-eval")


@pytest.fixture(scope="module", params=[False, True], ids=["http", "mcp"])
def serving(request: pytest.FixtureRequest, vf_eval: str) -> Iterator[Serving]:
    with served(COUNTER, mcp=request.param) as running:
        yield running


def rows() -> list[dict[str, Any]]:
    """Two counters with different starts. The model adds 3 to each, which is right for the first only."""
    params = {"input": [{"role": "user", "content": "add 3"}], "tools": Environment.load(COUNTER).resources().tools()}
    starts = [{"initial_count": start, "expected_count": start + 3 + start % 2} for start in (10, 11)]
    return [{**COUNTER_ROW, "responses_create_params": params, **start} for start in starts]


def configuration(folder: Path, serving: Serving) -> str:
    return f"""
model = "policy"
push = false
output_dir = "{folder}"
[run]
name = "run"
[env.taskset]
id = "nemo_gym"
dataset = "{folder / "rows.jsonl"}"
[env.taskset.task]
resources_url = "{url_of(serving, COUNTER)}"
[env.agent.harness]
id = "null"
[env.agent.runtime]
type = "subprocess"
[client]
base_url = "{url_of(serving, "policy_model")}/v1"
api_key_var = "POLICY_KEY"
"""


def test_every_episode_gets_a_session_its_tools_and_our_reward(vf_eval: str, serving: Serving, tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    (tmp_path / "eval.toml").write_text(configuration(tmp_path, serving))
    ended = run(vf_eval, "@", "eval.toml", "--no-rich", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr[-3000:]
    episodes = [json.loads(line) for line in (tmp_path / "run" / "traces.jsonl").read_text().splitlines()]
    assert len(episodes) == 2
    for episode in episodes:
        (trace,) = episode["traces"]
        row = episode["task"]["data"]["row"]
        assert (trace["ok"], trace["errors"]) == (True, []), trace["errors"]
        assert trace["rewards"]["nemo_gym"]["score"] == float(row["initial_count"] % 2 == 0)
        assert trace["metrics"]["expected_count"] == row["expected_count"]
        messages = [node["message"] for node in trace["nodes"]]
        assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant"]
        assert json.loads(messages[2]["content"]) == {"success": True}
    metrics = Web(url_of(serving, COUNTER)).get("/metrics").text
    assert 'ludus_requests_total{route="/seed_session",status="200"} 2' in metrics
    assert 'ludus_requests_total{route="/verify",status="200"} 2' in metrics
    assert ('route="other",status="200"} 2' in metrics) is not serving.plan.mcp  # tool calls use HTTP routes or MCP

"""The job in NeMo Gym: `gym env start` with the servers of `simple_agent`, then `gym eval run --no-serve`.

Each server would get a virtual environment of its own, made at the start: here all of them use the one of this Python.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from job import options, prompt, report

HERE = Path(__file__).parent
CONFIG = """
repeat:
  resources_servers:
    repeat: {entrypoint: app.py, domain: other}
repeat_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: repeat}
      model_server: {type: responses_api_models, name: policy_model}
repeat_environment_server:
  environment_servers:
    legacy_agent:
      entrypoint: app.py
      agent_server: {type: responses_api_agents, name: repeat_simple_agent}
"""
SERVERS = (
    "resources_servers/repeat",
    "responses_api_agents/simple_agent",
    "responses_api_models/openai_model",
    "environment_servers/legacy_agent",
)
TOOL = {
    "type": "function",
    "name": "look_up",
    "description": "Look up a number.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
}


def write_gym(folder: Path, rollouts: int, with_tool: bool) -> None:
    """The folder in which `gym` is typed: the resources server, its configuration and the rows."""
    for server in SERVERS:
        (folder / server).mkdir(parents=True)
        (folder / server / ".venv").symlink_to(sys.prefix)
    repeat = folder / SERVERS[0]
    (repeat / "app.py").symlink_to(HERE / "nemo_gym_server.py")
    (repeat / "requirements.txt").touch()
    (folder / "repeat.yaml").write_text(CONFIG)
    with (folder / "tasks.jsonl").open("w") as rows:
        for number in range(rollouts):
            asked = {"input": [{"role": "user", "content": prompt(number)}], "tools": [TOOL] if with_tool else []}
            print(json.dumps({"responses_create_params": asked, "number": number}), file=rows)


def wait_until_ready(started: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until the command says that all servers are ready."""
    while "servers ready!" not in log.read_text(errors="replace"):
        if started.poll() is not None:
            raise SystemExit(f"gym env start: {log.read_text(errors='replace').strip().splitlines()[-1]}")
        time.sleep(0.2)


def recorded(folder: Path) -> Iterator[tuple[int, float | None]]:
    """The rollouts, and the failures without a reward."""
    for name in ("rollouts.jsonl", "rollouts_failures.jsonl"):
        path = folder / name
        for line in path.read_text().splitlines() if path.exists() else ():
            row = json.loads(line)
            failed = row.get("_ng_failure_class") is not None
            yield row.get("number", row.get("_ng_task_index")), None if failed else row["reward"]


def main() -> None:
    given = options()
    folder = given.output
    if not given.resume:
        write_gym(folder, given.rollouts, given.tool)
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "PYTHONUNBUFFERED": "1",
        "RAY_raylet_start_wait_time_s": "200",
    }
    gym = str(Path(sys.executable).parent / "gym")
    model = ["--model-type", "openai_model", "--model-url", given.url, "--model", "stub", "--model-api-key", "none"]
    served = [gym, "env", "start", "--config", "repeat.yaml", *model, "+skip_venv_if_present=true"]
    rollouts = [gym, "eval", "run", "--no-serve", "--agent", "repeat_simple_agent", "--input", "tasks.jsonl"]
    rollouts += ["--output", "rollouts.jsonl", "--concurrency", str(given.concurrency)]
    log = folder / "start.log"
    with log.open("wb") as printed:
        started = subprocess.Popen(served, cwd=folder, env=environment, stdout=printed, stderr=printed)
    wait_until_ready(started, log)
    words = [*rollouts, "--resume"] if given.resume else rollouts
    subprocess.run(words, cwd=folder, env=environment, check=True, stdout=sys.stderr)
    started.terminate()
    report(recorded(folder))


if __name__ == "__main__":
    main()

"""The program that `mini_swe.py` starts: mini-swe-agent between our model and our tool `bash`.

It imports the package and nothing of ours. The task comes on stdin, the addresses in the environment.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

os.environ["MSWEA_SILENT_STARTUP"] = "1"
os.environ["MSWEA_GLOBAL_CONFIG_DIR"] = os.environ.get("HOME", ".")

#: The timeout of one model call or one command. The limits of the rollout are always shorter.
_TIMEOUT = 24 * 3600.0

_PROBLEM = re.compile(r"<problem>\n(.*)\n</problem>", re.DOTALL)


def post(url: str, key: str, body: dict[str, Any]) -> str:
    """The reply to a request."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as reply:
        text: str = reply.read().decode()
    return text


class ProxiedModel:
    """The model of the rollout, as mini-swe-agent asks one."""

    def __init__(self, settings: dict[str, Any], params: dict[str, Any]) -> None:
        from minisweagent.models.utils import actions_toolcall_response as calls

        self.config = None
        self._calls = calls
        self._templates = settings
        self._params = params

    def query(self, messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        """Ask the model, and find the commands in its answer."""
        items = [
            {key: value for key, value in item.items() if key != "extra"}
            for message in messages
            for item in (message["output"] if message.get("object") == "response" else [message])
        ]
        body = {**self._params, "input": items, "tools": [self._calls.BASH_TOOL_RESPONSE_API]}
        answer = json.loads(post(f"{os.environ['OPENAI_BASE_URL']}/responses", os.environ["OPENAI_API_KEY"], body))
        template = self._templates["format_error_template"]
        actions = self._calls.parse_toolcall_actions_response(answer["output"], format_error_template=template)
        extra = {"actions": actions, "cost": 0.0, "timestamp": time.time()}
        return {"object": "response", "output": answer["output"], "extra": extra}

    def format_message(self, **fields: Any) -> dict[str, Any]:
        """A message as an item."""
        return fields

    def format_observation_messages(
        self, message: dict[str, Any], outputs: list[dict[str, Any]], template_vars: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """The outputs of commands, as the model reads them."""
        observations: list[dict[str, Any]] = self._calls.format_toolcall_observation_messages(
            actions=message["extra"]["actions"],
            outputs=outputs,
            observation_template=self._templates["observation_template"],
            template_vars=template_vars,
        )
        return observations

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        """Nothing for the prompts."""
        return {}

    def serialize(self) -> dict[str, Any]:
        """Nothing for the file of the trajectory, which is ours to write."""
        return {}


class ToolEnvironment:
    """The task's sandbox, as mini-swe-agent runs commands."""

    config = None

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        """Run a command through the tool `bash`. The agent is done when a command prints the word that submits."""
        from minisweagent.exceptions import Submitted

        url, key = f"{os.environ['LUDUS_TOOLS_URL']}/bash", os.environ["LUDUS_TOOLS_KEY"]
        text = post(url, key, {"command": action.get("command", "")})
        try:
            reply = json.loads(text)
            output, ended = str(reply["output"]), str(reply["ended"])
        except (ValueError, KeyError, TypeError):
            return {"output": text, "returncode": -1, "exception_info": "the command was refused"}
        code = re.fullmatch(r"exit code (\d+)", ended)
        lines = output.lstrip().splitlines(keepends=True)
        if code and code[1] == "0" and lines and lines[0].strip() == "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT":
            submission = "".join(lines[1:])
            extra = {"exit_status": "Submitted", "submission": submission}
            raise Submitted({"role": "exit", "content": submission, "extra": extra})
        return {"output": output, "returncode": int(code[1]) if code else -1, "exception_info": "" if code else ended}

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        """The machine, for the prompts. No variable of our own environment."""
        return {"system": "Linux", "release": "", "version": "", "machine": platform.machine(), "cwd": "~/repo"}

    def serialize(self) -> dict[str, Any]:
        """Nothing for the file of the trajectory."""
        return {}


def task_of(request: dict[str, Any]) -> str:
    """The problem in the rollout's prompt, or the whole prompt if it marks none."""
    content = request["input"]
    texts = [content] if isinstance(content, str) else [_text(item.get("content")) for item in content]
    prompt = "\n\n".join(filter(None, texts))
    match = _PROBLEM.search(prompt)
    return match[1] if match else prompt


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content or [])


def main() -> None:
    """Play one rollout."""
    import minisweagent
    import yaml
    from minisweagent.agents.default import DefaultAgent

    request = json.load(sys.stdin)
    settings = yaml.safe_load((Path(minisweagent.package_dir) / "config" / "mini.yaml").read_text(encoding="utf-8"))
    templates = {key: settings["agent"][key] for key in ("system_template", "instance_template")}
    params = {key: value for key, value in request.items() if key not in ("input", "tools", "tool_choice")}
    model = ProxiedModel(settings["model"], params)
    agent = DefaultAgent(model, ToolEnvironment(), **templates, step_limit=0, cost_limit=0.0)
    try:
        agent.run(task_of(request))
    except urllib.error.HTTPError as error:
        if b"agent.max_steps" not in error.read():  # our side counts the steps
            raise


if __name__ == "__main__":
    main()

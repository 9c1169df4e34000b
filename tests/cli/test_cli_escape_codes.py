"""Escape codes in server replies and rows are made visible before they reach the terminal."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import orjson
import pytest
from servers import Server, running, send

BAD_KEY = "\x1b[2J\x1b]0;pwned\x07 bad key"


class Refusing(Server):
    """Refuses every key with a message that would clear the screen."""

    async def respond(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        return await send(writer, 401, orjson.dumps({"error": {"message": BAD_KEY}}))


def ludus(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "200"}
    command = [sys.executable, "-m", "ludus", *arguments]
    return forked.run(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8"
    )


@pytest.mark.parametrize("words", [["collect", "mcqa", "--repeats", "3"], ["chat", "mcqa"]])
def test_escape_codes_of_a_server_do_not_reach_the_terminal(tmp_path: Path, words: list[str]):
    with running(Refusing()) as server:
        done = ludus(tmp_path, *words, "--model", f"{server.url}#m")
    assert "bad key" in done.stderr + done.stdout
    assert not set("\x1b\x07") & set(done.stderr + done.stdout)


def test_escape_codes_in_field_names_do_not_reach_the_terminal(tmp_path: Path):
    row = {"responses_create_params": {"input": "x", "metadata": {"\x1b[31mred": 5}}, "options": {"\x1b[2J": 5}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "environment.yaml").write_text("name: prices\nresources: resources.py:Prices\n")
    (tmp_path / "resources.py").write_text(
        "import ludus\n\n"
        "class Prices(ludus.Resources):\n"
        "    class Task(ludus.Task):\n"
        "        options: dict[str, str] = {}\n"
        "    def verify(self, task, response): ...\n"
    )
    (tmp_path / "script.yaml").write_text("- done\n")
    done = ludus(tmp_path, "collect", ".", "--input", "rows.jsonl", "--model", "scripted:script.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith("error: rows.jsonl:1: options.\u241b[2J must be text, not 5. ")
    assert "\x1b" not in done.stderr

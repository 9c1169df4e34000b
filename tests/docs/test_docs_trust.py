"""docs/trust.md shows the real output of its commands, run in order in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "trust.md").read_text(encoding="utf-8")


def run(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=variables, capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def stripped_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def test_the_trust_page_shows_what_its_commands_print(tmp_path: Path) -> None:
    (preparation,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in preparation.splitlines():
        run(line, tmp_path)
    shown = [part for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) for part in block.split("$ ")[1:]]
    assert len(shown) == 8
    for part in shown:
        command, _, output = part.partition("\n")
        assert stripped_lines(run(command, tmp_path)) == stripped_lines(output), command

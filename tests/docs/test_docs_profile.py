"""docs/profile.md: its commands run in an empty folder and print the lines that it shows; its prices can be read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from ludus.store.prices import read_prices

PAGE = (Path(__file__).parents[2] / "docs" / "profile.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_the_profile_page_shows_lines_that_its_commands_print(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    whole = ["bash", "-ec", block("sh")]
    done = subprocess.run(whole, cwd=tmp_path, env=variables, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    for line in block("text").splitlines():
        assert line.rstrip() in printed, f"{line}\n{done.stdout}"
    assert (tmp_path / "profiles" / "first" / "subset.jsonl").read_text().count("\n") == 4


def test_the_price_list_of_the_page_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(block("yaml"))
    assert read_prices(tmp_path / "prices.yaml")["gpt-5-mini"].cached == 0.025

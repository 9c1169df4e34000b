"""The commands of docs/data.md run in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from data_rows import command

ROOT = Path(__file__).parents[2]


def test_the_commands_that_look_after_a_dataset_run_in_an_empty_folder(tmp_path: Path):
    page = (ROOT / "docs" / "data.md").read_text()
    section = page.split("## Look after a dataset")[1].split("\n## ")[0]
    (lines,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    for line in lines.splitlines():
        words = shlex.split(line, comments=True)
        done = command(tmp_path, *words[2:])
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert sorted(os.listdir(tmp_path / "data")) == ["example.jsonl", "few.jsonl", "manifest.json", "parts"]

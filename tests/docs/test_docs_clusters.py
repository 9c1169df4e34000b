"""The Slurm script and the Kubernetes manifest of the docs: they parse, their commands exist, and they collect."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import forked
import pytest
import yaml
from doc_pages import DOCS, accepts

SLURM = (DOCS / "examples" / "slurm.sh").read_text()
MANIFEST = (DOCS / "examples" / "kubernetes.yaml").read_text()
JOB: dict[str, Any] = yaml.safe_load(MANIFEST)
POD = JOB["spec"]["template"]["spec"]

#: Stands for `ludus` in a script: notes its arguments, and runs the real command with a scripted model.
STAND_IN = f"""#!{sys.executable} -S
import json, os, sys
words = sys.argv[1:]
with open("commands.jsonl", "a") as file:
    file.write(json.dumps(words) + "\\n")
if "--model" in words:
    words[words.index("--model") + 1] = "scripted:script.yaml"
    words += ["--limit", "5"]
os.execv("bin/command", ["ludus", *words])
"""


def commands(text: str) -> list[list[str]]:
    """The ludus commands in a text, with their variables unexpanded."""
    joined = text.replace("\\\n", " ")
    found = re.findall(r"\bludus ((?:collect|merge) [^\n'`]*)", joined)
    return [shlex.split(each, comments=True) for each in found]


def merge_command(text: str) -> str:
    (found,) = re.findall(r"ludus merge [^\n']*", text)
    return str(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    program = tmp_path / "bin" / "ludus"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    forked.write_program(program.with_name("command"))
    (tmp_path / "script.yaml").write_text("- The answer is \\boxed{A}.\n")
    return tmp_path


def run(folder: Path, script: str, **variables: str) -> None:
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **variables}
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_slurm_script_is_valid_bash():
    done = subprocess.run(["bash", "-n", str(DOCS / "examples" / "slurm.sh")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert SLURM.startswith("#!/bin/bash\n")


def test_the_shards_of_the_slurm_script_are_the_tasks_of_its_array():
    (last,) = re.findall(r"^#SBATCH --array=1-(\d+)$", SLURM, re.MULTILINE)
    assert f"\nshards={last}\n" in SLURM
    directives = [number for number, line in enumerate(SLURM.splitlines()) if line.startswith("#SBATCH")]
    first_command = next(n for n, line in enumerate(SLURM.splitlines()) if line and not line.startswith("#"))
    assert max(directives) < first_command  # sbatch stops reading directives there


def test_the_manifest_is_an_indexed_job():
    assert (JOB["apiVersion"], JOB["kind"]) == ("batch/v1", "Job")
    spec = JOB["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["parallelism"] <= spec["completions"]
    assert POD["restartPolicy"] == "Never"  # backoffLimitPerIndex demands it
    (container,) = POD["containers"]
    assert f'--shard "$shard/{spec["completions"]}"' in container["args"][0]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in POD["volumes"]}


@pytest.mark.parametrize("text", [SLURM, MANIFEST, (DOCS / "clusters.md").read_text()], ids=["slurm", "job", "page"])
def test_the_commands_are_commands_that_ludus_accepts(text):
    found = commands(text)
    assert {words[0] for words in found} == {"collect", "merge"}
    for words in found:
        accepts(words)


def test_a_wrong_option_is_not_accepted():
    with pytest.raises(click.UsageError):
        accepts(["collect", "mcqa", "--shards", "1/2"])


@pytest.mark.slow
def test_the_slurm_array_collects_all_shards_and_joins_them(folder):
    for task in range(1, 9):
        run(folder, SLURM, SLURM_ARRAY_TASK_ID=str(task))
    run(folder, merge_command(SLURM))
    check(folder, folder / "runs" / "big")


@pytest.mark.slow
def test_the_pods_of_the_job_collect_all_shards_which_join(folder):
    (container,) = POD["containers"]
    assert container["command"] == ["/bin/sh", "-ec"]
    assert "/runs" in [each["mountPath"] for each in container["volumeMounts"]]
    script = container["args"][0].replace("/runs/", f"{folder}/volume/")
    for index in range(JOB["spec"]["completions"]):
        run(folder, shlex.join(["/bin/sh", "-ec", script]), JOB_COMPLETION_INDEX=str(index))
    run(folder, merge_command(MANIFEST).replace("/runs/", f"{folder}/volume/"))
    check(folder, folder / "volume" / "big")


def check(folder: Path, runs: Path) -> None:
    """The joined run has 8 repeats of the 5 rows, and nobody collected anything twice."""
    counts = json.loads((runs / "all" / "metrics.json").read_bytes())["counts"]
    assert counts["completed"] == counts["dispatched"] == 40
    words = [json.loads(line) for line in (folder / "commands.jsonl").read_text().splitlines()]
    shards = [each[each.index("--shard") + 1] for each in words if each[0] == "collect"]
    assert shards == [f"{number}/8" for number in range(1, 9)]

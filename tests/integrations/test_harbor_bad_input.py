"""What is wrong with a Harbor task is said in one line with the place and the remedy, and nothing is left behind."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from harbor_boxes import TASKS, needs_images, new_cache, played
from waiting import until

from ludus import UserError
from ludus.sandbox.bases import cache_folder

REWARD = "the script must write a number to /logs/verifier/reward.txt, or names and numbers to reward.json"

#: What is written where, and the line that tells of it.
CASES = {
    "instruction.md": ("", "{task} has no instruction. Write it into instruction.md"),
    "environment/Dockerfile": (
        "FROM fedora:40\n",
        "{task}/environment/Dockerfile:1: FROM fedora:40: no base on this machine stands for this image. Make one: "
        "ludus sandbox base debian --for fedora:40, or with the path of a root file system for debian",
    ),
    "tests/Dockerfile": (
        "FROM ubuntu:24.04\nCOPY --from=registry.example/uv:1 /uv /uv\n",
        "{task}/tests/Dockerfile:2: COPY registry.example/uv:1: no base on this machine stands for this image. Make "
        "one: ludus sandbox base debian --for registry.example/uv:1, or with the path of a root file system for debian",
    ),
}

FAILURES = {
    "third step": (
        "environment/Dockerfile",
        "FROM ubuntu:1\nRUN true\nRUN echo no >&2; exit 3\nRUN true\n",
        "task/environment/Dockerfile:3: the step failed: RUN echo no >&2; exit 3: no. Mend the step; if it needs the "
        "network: ludus sandbox build --network, or --set resources.build_network=true",
    ),
    "services": (
        "environment/docker-compose.yaml",
        "services: {main: {}, db: {}}\n",
        "task/environment/docker-compose.yaml has the services main, db, and a task has one box here: put them into "
        "one Dockerfile",
    ),
    "missing reward": (
        "tests/test.sh",
        "exit 4\n",
        f"task/tests/test.sh: the test script wrote no reward and ended with exit code 4: {REWARD}",
    ),
    "empty reward": (
        "tests/test.sh",
        ": > /logs/verifier/reward.txt\n",
        "task/tests/test.sh: the test script wrote no finite number to /logs/verifier/reward.txt: the file is empty: "
        f"{REWARD}",
    ),
    "reward that is not finite": (
        "tests/test.sh",
        "echo '{\"reward\": Infinity}' > /logs/verifier/reward.json\n",
        "task/tests/test.sh: the test script wrote no finite number to /logs/verifier/reward.json: "
        f"'{{\"reward\": Infinity}}': {REWARD}",
    ),
    "network": (
        "tests/test.sh",
        "uvx pytest; echo 0 > /logs/verifier/reward.txt\n",
        "task/tests/test.sh: the test script cannot run without a network: /tests/test.sh: line 1: uvx: command not "
        "found; give its image what it fetches, or allow hosts: resources.allowed_hosts",
    ),
}


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A task in an empty folder that every user may walk, which is the place of temporary files, too."""
    settings = new_cache(monkeypatch)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        here.chmod(0o755)
        (here / "temporary").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(here / "temporary"))
        shutil.copytree(TASKS / "hello", here / "task")
        yield here, settings


def left_behind(here: Path) -> list[str]:
    """Mounts, processes and temporary files of ours that are still there."""
    ours = (str(here), str(cache_folder()))
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if any(place in line for place in ours)]
    names = ("runc", "buildah", "unshare", "sh")
    processes = [child.name() for child in psutil.Process().children(recursive=True) if child.name() in names]
    return [*mounts, *processes, *map(str, (here / "temporary").iterdir())]


@pytest.mark.parametrize("path", CASES)
def test_what_can_be_seen_before_is_refused_in_one_line(place: Any, path: str) -> None:
    here, settings = place
    text, line = CASES[path]
    (here / "task" / path).write_text(text)
    toml = (here / "task/task.toml").read_text()
    (here / "task/task.toml").write_text(toml.replace("[verifier]", '[verifier]\nenvironment_mode = "separate"'))
    with pytest.raises(UserError) as caught:
        played(f"harbor:{here / 'task'}", ["Done."], **settings)
    assert str(caught.value) == line.format(task=here / "task")
    assert left_behind(here) == []


@needs_images
@pytest.mark.parametrize("case", FAILURES)
def test_what_shows_later_is_a_failure_in_one_line(place: Any, case: str) -> None:
    here, settings = place
    path, text, line = FAILURES[case]
    (here / "task" / path).write_text(text)
    (rollout,) = played(f"harbor:{here / 'task'}", ["Done."], **settings)
    assert rollout.reward is None
    error: Any = rollout.error
    assert (f"{error.where}: {error.cause}" if error.stage == "verify" else error.cause) == line
    assert "\n" not in error.cause
    until(lambda: left_behind(here) == [])
    containers = cache_folder() / "builds/root/overlay-containers/containers.json"
    assert not containers.exists() or json.loads(containers.read_text() or "[]") == []

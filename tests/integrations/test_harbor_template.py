"""Tasks that Harbor's own command generates run as they are. Needs it, 0.25 or newer: `uv tool install harbor`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harbor_boxes import needs_images, new_cache, played

from ludus.sandbox.bases import Bases

HARBOR = shutil.which("harbor")
BASE = "debian:bookworm-slim"

pytestmark = pytest.mark.skipif(HARBOR is None, reason="Harbor is not installed: uv tool install harbor")

#: An image with what the generated test script fetches: uv, and the packages that it names, as files.
DOCKERFILE = f"""FROM {BASE}
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip
RUN pip install --break-system-packages uv && pip download -q -d /wheels pytest==8.4.1 pytest-json-ctrf==0.3.5
ENV UV_FIND_LINKS=/wheels UV_OFFLINE=1 UV_PYTHON=/usr/bin/python3 UV_PYTHON_DOWNLOADS=never
WORKDIR /app
"""

LOOKS = 'from pathlib import Path\n\n\ndef test_outputs():\n    assert Path("/app/one").read_text() == "1\\n"\n'


def generated(folder: Path, *options: str) -> Path:
    """A task of Harbor's template, with an instruction and a solution."""
    assert HARBOR is not None
    command = [HARBOR, "init", "--task", "ludus/generated", "--output-dir", str(folder), *options]
    subprocess.run(command, check=True, capture_output=True, timeout=120, env={**os.environ, "HOME": str(folder)})
    task = folder / "generated"
    (task / "instruction.md").write_text("Write `1` into `/app/one`.\n")
    with (task / "solution/solve.sh").open("a") as script:
        script.write("\necho 1 > /app/one\n")
    return task


@needs_images
def test_a_generated_task_with_a_script_of_its_own_runs_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = new_cache(monkeypatch)
    task = generated(tmp_path, "--no-pytest")  # with a verifier of its own, which sees only what is declared
    toml = (task / "task.toml").read_text()
    assert 'environment_mode = "separate"' in toml
    (task / "task.toml").write_text(toml.replace("artifacts = []", 'artifacts = ["/app/one"]'))
    with (task / "tests/test.sh").open("a") as script:
        script.write('\nif [ "$(cat one)" = 1 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n')
    solved, idle = played(f"harbor:{task}", None, ["Done."], **settings)
    assert (solved.reward, idle.reward) == (1.0, 0.0)


@needs_images
def test_the_generated_script_fetches_its_tools_and_says_so_where_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = new_cache(monkeypatch)
    (rollout,) = played(f"harbor:{generated(tmp_path, '--verifier-mode', 'shared')}", **settings)
    assert rollout.reward is None
    assert rollout.error is not None
    assert "the test script cannot run without a network" in rollout.error.cause


@needs_images
@pytest.mark.slow
def test_the_generated_script_runs_offline_in_an_image_that_holds_its_tools(tmp_path: Path) -> None:
    if Bases().find(BASE) is None:
        pytest.skip(f"there is no base: ludus sandbox base debian --for {BASE}")
    task = generated(tmp_path, "--verifier-mode", "shared")
    (task / "environment/Dockerfile").write_text(DOCKERFILE)
    (task / "tests/test_outputs.py").write_text(LOOKS)
    rollouts = played(f"harbor:{task}", None, ["Done."], **{"resources.build_network": True})
    assert [(rollout.reward, rollout.error) for rollout in rollouts] == [(1.0, None), (0.0, None)]

"""Rows as SWE-bench and SWE-Gym publish them, against an image that this test builds: a git repository in /testbed."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from root_file_systems import _copy_libraries, new_image_cache, root_file_system
from sandboxes import needs
from test_docker_engine import EngineDouble

from ludus import Environment, Failure, Response, Verdict
from ludus.graders.repository import make_patch
from ludus.response import function_call, function_call_output, message
from ludus.sandbox import SandboxError
from ludus.sandbox.oci import OciProvider
from ludus.sandbox.packages import places
from ludus.testing import judge

pytestmark = [needs("oci"), pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]

NAME = "mini_swe_agent"
BASE = {
    "shop.py": b"def total(prices):\n    return sum(prices[1:])\n",
    "tests/test_shop.py": b"from shop import total\n\n\ndef test_nothing():\n    assert total([]) == 0\n",
}
FIXED = {**BASE, "shop.py": b"def total(prices):\n    return sum(prices)\n"}
TESTED = {
    **BASE,
    "tests/test_shop.py": BASE["tests/test_shop.py"] + b"\n\ndef test_all():\n    assert total([1, 2]) == 3\n",
}
PATCH = make_patch(BASE, FIXED)
TOOLS = ("bash", "git", "sed", "mkdir", "test")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """An image as a tar archive, and the commit that its repository is at."""
    root = tmp_path_factory.mktemp("image") / "root"
    shutil.copytree(root_file_system(), root, symlinks=True)
    for tool in TOOLS:
        program = shutil.which(tool)
        assert program is not None
        shutil.copy2(Path(program).resolve(), root / "bin" / tool)
        _copy_libraries(program, root)
    packages = root / "opt/packages"
    packages.mkdir(parents=True)
    for place in places(("pytest",)):
        copy = shutil.copytree if place.is_dir() else shutil.copy2
        copy(place, packages / place.name)
    python = (root / "bin/python3").read_text()
    (root / "bin/python").write_text(python.replace("PYTHONHOME", 'PYTHONPATH="$PYTHONPATH:/opt/packages" PYTHONHOME'))
    (root / "bin/python").chmod(0o755)
    for path, data in BASE.items():
        (root / "testbed" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "testbed" / path).write_bytes(data)
    script = "git init -q . && git add -A && git -c user.name=a -c user.email=b commit -qm base && git rev-parse HEAD"
    commit = subprocess.run(script, shell=True, cwd=root / "testbed", check=True, capture_output=True, text=True)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(root, ".")
    return archive.getvalue(), commit.stdout.strip()


@pytest.fixture
async def provider(
    image: tuple[bytes, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[OciProvider]:
    """Sandboxes of images, where an engine has the image of one instance."""
    double = EngineDouble("swebench/sweb.eval.x86_64.team_1776_shop-7:latest", image[0])
    runner = web.AppRunner(double.application())
    await runner.setup()
    socket = tmp_path / "engine.sock"
    await web.UnixSite(runner, str(socket)).start()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{socket}")
    opened = OciProvider(new_image_cache())
    yield opened
    await opened.close()
    await runner.cleanup()


def row(commit: str, **fields: Any) -> dict[str, Any]:
    """A row of SWE-bench, with its field names."""
    return {
        "instance_id": "team__shop-7",
        "repo": "team/shop",
        "base_commit": commit,
        "patch": PATCH,
        "test_patch": make_patch(BASE, TESTED),
        "problem_statement": "The first price is left out of the total.",
        "hints_text": "",
        "created_at": "2024-01-01T00:00:00Z",
        "version": "1.0",
        "FAIL_TO_PASS": json.dumps(["tests/test_shop.py::test_all"]),
        "PASS_TO_PASS": json.dumps(["tests/test_shop.py::test_nothing"]),
        "environment_setup_commit": commit,
        **fields,
    }


def ran(command: str) -> Response:
    """A response whose command runs before the verdict."""
    call = function_call("bash", {"command": command}, call_id="c")
    return Response.of(call, function_call_output("c", ""), message("Done."))


@pytest.mark.slow
async def test_a_row_of_swe_bench_is_graded_right_with_its_patch_and_0_without(
    image: tuple[bytes, str], provider: OciProvider
):
    given = row(image[1])
    apply = f"cat > /tmp/p <<'END'\n{PATCH}END\ngit apply /tmp/p"
    found = {
        "patch": await judge(NAME, given, ran(apply), shared=provider),
        "another": await judge(NAME, given, ran("echo '# more' >> shop.py"), shared=provider),
        "nothing": await judge(NAME, given, "Done.", shared=provider),
    }
    assert isinstance(found["patch"], Verdict), found
    assert {name: each.reward for name, each in found.items() if isinstance(each, Verdict)} == {
        "patch": 1.0,
        "another": 0.0,
        "nothing": 0.0,
    }
    assert "/testbed" in Environment.load(NAME).task(given).input[0]["content"]
    assert found["patch"].values["tests_status"]["FAIL_TO_PASS"]["success"] == ["tests/test_shop.py::test_all"]


async def test_a_missing_image_is_one_line_before_the_model_is_asked(image: tuple[bytes, str], provider: OciProvider):
    found = await judge(NAME, row(image[1], instance_id="team__other-8"), "Done.", shared=provider)
    assert isinstance(found, SandboxError)
    name = "swebench/sweb.eval.x86_64.team_1776_other-8:latest"
    assert (found.stage, "\n" in found.cause) == ("open", False)
    assert f"the task's image {name} cannot be used: the engine has no image {name}" in found.cause
    assert f"docker pull {name}" in found.cause


@pytest.mark.parametrize("name", ["/etc", "../secrets", ".", "a//b", "~/x", "tests"])
async def test_a_row_cannot_name_a_folder_of_this_machine(name: str, image: tuple[bytes, str], provider: OciProvider):
    found = await judge(NAME, row(image[1], image_name=name), "Done.", shared=provider)
    assert isinstance(found, Failure)
    assert found.kind == "bad_row"
    assert "no file or folder of yours" in found.cause

"""A Dockerfile is built once without a container engine; what cannot be built is one line, and nothing is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from root_file_systems import new_image_cache, root_file_system
from sandboxes import needs

from ludus.errors import UserError
from ludus.sandbox import SandboxSpec
from ludus.sandbox.bases import Bases
from ludus.sandbox.building import ImageBuilder, problem_with_builds
from ludus.sandbox.dockerfile import ImageRecipe
from ludus.sandbox.oci import OciProvider
from ludus.sandbox.oci_images import ImageStore

needs_builds = pytest.mark.skipif(problem_with_builds() is not None, reason=": ".join(problem_with_builds() or ()))

STAGES = """\
FROM ubuntu:24.04 AS first
RUN echo made > /made
FROM ubuntu:24.04
WORKDIR /work
ENV COLOUR=blue
COPY --from=first /made made
COPY start.sh data.txt /work/
ENTRYPOINT ["/work/start.sh"]
"""


@pytest.fixture(scope="module")
def builder() -> ImageBuilder:
    cache = new_image_cache()
    return ImageBuilder(Bases({"ubuntu:*": str(root_file_system())}, cache), cache)


def recipe(dockerfile: str, **files: str) -> ImageRecipe:
    data = {name.replace("_", "."): text.encode() for name, text in files.items()}
    return ImageRecipe(dockerfile, data, frozenset({"start.sh"}), place="environment/Dockerfile")


def mounts_under(folder: Path) -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]


@needs("oci")
@needs_builds
async def test_an_image_of_several_stages_opens_as_a_sandbox(builder: ImageBuilder) -> None:
    made = recipe(STAGES, start_sh='#!/bin/sh\nexec "$@"\n', data_txt="1\n")
    name = builder.build(made)
    image = builder.image(name)
    assert (image.workdir, image.entrypoint, image.env["COLOUR"]) == ("/work", ("/work/start.sh",), "blue")
    provider = OciProvider(builder.cache / "images")
    async with await provider.open(SandboxSpec(image=name)) as sandbox:
        result = await sandbox.exec("cat made data.txt; ls -l start.sh; echo $COLOUR", cwd="/work")
    await provider.close()
    assert result.text.startswith("made\n1\n-rwxr-xr-x")
    assert result.text.endswith("blue\n")
    assert builder.build(made) == name
    assert builder.build(recipe(STAGES, start_sh="#!/bin/sh\n", data_txt="2\n")) != name
    assert mounts_under(builder.cache) == []


@needs_builds
@pytest.mark.parametrize(
    ("dockerfile", "line"),
    [
        ("FROM ubuntu:24.04\nRUN echo one\nRUN echo two; false\n", "environment/Dockerfile:3: the step failed: RUN"),
        ("FROM ubuntu:24.04\nCOPY missing /\n", "environment/Dockerfile:2: the step failed: COPY missing /: no such"),
    ],
)
def test_a_build_that_fails_says_where_and_leaves_nothing(
    builder: ImageBuilder, dockerfile: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(ImageStore(builder.cache / "images").listed())
    with pytest.raises(UserError, match=line):
        builder.build(recipe(dockerfile))
    assert mounts_under(builder.cache) == []
    assert list(tmp_path.iterdir()) == []
    assert len(ImageStore(builder.cache / "images").listed()) == before


def test_an_image_without_a_base_is_named_with_its_line(tmp_path: Path) -> None:
    builder = ImageBuilder(Bases(cache=tmp_path), tmp_path)
    with pytest.raises(UserError, match=r"environment/Dockerfile:2: FROM python:3.12: no base .* --for python:3.12"):
        builder.build(recipe("# one\nFROM python:3.12\n"))


def test_names_of_bases_are_found_as_people_write_them(tmp_path: Path) -> None:
    bases = Bases({"python:*": str(tmp_path)}, tmp_path)
    (tmp_path / "exact").mkdir()
    bases.add(["python:3.12-slim", "debian"], tmp_path / "exact")
    assert bases.find("docker.io/library/python:3.12-slim@sha256:00") == tmp_path / "exact"
    assert bases.find("python:3.11") == tmp_path
    assert bases.find("debian:latest") == tmp_path / "exact"
    assert bases.find("alpine") is None


@needs("oci")
async def test_processes_in_the_background_end_when_they_are_told_to() -> None:
    provider = OciProvider(new_image_cache())
    spec = SandboxSpec(image=str(root_file_system()), background=True)
    async with await provider.open(spec) as sandbox:
        await sandbox.exec("setsid sh -c 'trap : TERM; while true; do date > /tmp/late; sleep 0.01; done' & sleep 0.1")
        await sandbox.end_processes()
        result = await sandbox.exec("ps -A -o args= || ls /proc")
    await provider.close()
    assert "late" not in result.text

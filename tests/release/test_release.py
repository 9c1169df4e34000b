"""The release: the same bytes from two builds, and what is known of every dependency."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import building
import checking
import inventory
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def repository(tmp_path):
    """A repository with one small distribution, committed."""
    root = tmp_path / "repository"
    root.mkdir()
    (root / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "tiny"\nversion = "1.0"\nrequires-python = ">=3.11"\n'
        '[project.optional-dependencies]\na = ["one>=1", "two"]\ndev = ["x"]\n'
    )
    (root / "tiny.py").write_text("x = 1\n")
    _git(root, "init", "--quiet")
    _git(root, "add", ".")
    _git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "first")
    return root


@pytest.mark.slow
def test_two_builds_of_a_commit_give_the_same_bytes_without_untracked_files(repository, tmp_path, monkeypatch):
    pytest.importorskip("build", reason="make release installs it")
    pytest.importorskip("hatchling", reason="make release installs it")
    monkeypatch.setattr(building, "PROJECTS", (".",))
    (repository / "secret.py").write_text("key = 1\n")
    digests = building.build(repository, tmp_path / "dist")
    assert set(digests) == {"tiny-1.0-py3-none-any.whl", "tiny-1.0.tar.gz"}
    for name, digest in digests.items():
        assert building.digest(tmp_path / "dist" / name) == digest
        assert b"secret" not in (tmp_path / "dist" / name).read_bytes()


def test_builds_that_differ_are_refused(repository, tmp_path, monkeypatch):
    made = iter(("first", "second"))

    def build_all(root: Path, folder: Path) -> Path:
        (folder / "tiny.whl").write_text(next(made))
        return folder

    monkeypatch.setattr(building, "_build_all", build_all)
    with pytest.raises(building.ReleaseError, match=r"^two builds of tiny.whl differ$"):
        building.build(repository, tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def test_the_date_of_a_release_is_that_of_its_commit(repository):
    assert building.commit_time(repository) == _git(repository, "show", "-s", "--format=%ct").strip()


def test_extras_are_those_that_a_user_installs(repository):
    assert checking.extras(repository) == {"a": ["one>=1", "two"]}
    ours = checking.extras(ROOT)
    assert {"math", "mcp", "train"} <= set(ours)
    assert not {"dev", "docs"} & set(ours)


def test_a_command_that_fails_is_one_line_with_the_reason(tmp_path):
    with pytest.raises(checking.ReleaseError) as raised:
        checking.run([sys.executable, "-c", "raise SystemExit('no such thing')"], tmp_path)
    assert str(raised.value).endswith(": no such thing")
    assert "\n" not in str(raised.value)


def test_the_inventory_has_every_dependency_with_its_licence():
    done = subprocess.run([sys.executable, inventory.__file__], capture_output=True, text=True, check=True)
    found = {each["name"]: each for each in json.loads(done.stdout)}
    assert found["pydantic"]["licence"] == "MIT"
    assert found["aiohttp"]["licence"].startswith("Apache-2.0")
    assert "pydantic-core" in found["pydantic"]["requires"]


def test_the_bill_of_materials_refers_only_to_what_it_lists():
    core = [_package("ludus-gym", "1.0", ["a"]), _package("a", "2", [], "MIT"), _package("pip", "9", [])]
    extra = [_package("a", "2", [], "MIT"), _package("b-c", "3", ["a"], "A licence of its own")]
    found = inventory.with_extras(core, [extra])
    bill = inventory.cyclonedx(found, "ludus-gym", "1.0", "2026-01-01T00:00:00Z")
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    listed = {each["bom-ref"]: each for each in bill["components"]}
    assert set(listed) == {"pkg:pypi/a@2", "pkg:pypi/b-c@3"}
    assert listed["pkg:pypi/a@2"]["licenses"] == [{"expression": "MIT"}]
    assert listed["pkg:pypi/b-c@3"]["licenses"] == [{"license": {"name": "A licence of its own"}}]
    assert listed["pkg:pypi/b-c@3"]["scope"] == "optional"
    known = {*listed, "pkg:pypi/ludus-gym@1.0"}
    assert all(each["ref"] in known and set(each["dependsOn"]) <= known for each in bill["dependencies"])
    assert re.search(r"^\| b-c \| 3 \| A licence of its own \| extra \|$", inventory.licence_table(found), re.MULTILINE)


def _package(name: str, version: str, requires: list[str], licence: str = "") -> inventory.Package:
    return {"name": name, "version": version, "licence": licence, "summary": "", "requires": requires}


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, text=True).stdout

"""The git commit in `run.json`."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

import ludus
from ludus import ScriptedModel

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder, *words):
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def revision(counter, rows, tmp_path, monkeypatch):
    """Collects in a folder and returns what run.json says about git."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))

    def collect():
        run = tmp_path / "run"
        ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(1), output=run, overwrite=True)
        return json.loads((run / "run.json").read_text())["git"]

    return collect


def test_there_is_none_outside_a_repository_and_before_the_first_commit(revision, tmp_path):
    assert revision() is None
    git(tmp_path / "project", "init", "-q")
    assert revision() is None


def test_it_is_the_commit_and_whether_files_changed_since(revision, tmp_path):
    folder = tmp_path / "project"
    git(folder, "init", "-q")
    (folder / "mine.py").write_text("1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    commit = git(folder, "rev-parse", "HEAD").strip()
    assert revision() == {"commit": commit, "changed": False}
    (folder / "mine.py").write_text("2\n")
    assert revision() == {"commit": commit, "changed": True}
    git(folder, "checkout", "-q", "mine.py")
    (folder / "new.py").write_text("3\n")
    assert revision() == {"commit": commit, "changed": True}

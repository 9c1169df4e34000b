"""The release: the same bytes from two builds, and a script for every extra."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import building
import checking
import pytest
import uses

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
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## 1.0 (2026-01-02)\n\n- The first.\n\n## 0.9\n")
    (root / "src/ludus").mkdir(parents=True)
    (root / "src/ludus/__init__.py").write_text('__version__ = "1.0"\n')
    for project in set(building.PROJECTS) - {building.CORE}:
        (root / project).mkdir(parents=True)
        (root / project / "pyproject.toml").write_text('version = "1.0"\n')
    _git(root, "init", "--quiet")
    _commit(root)
    return root


@pytest.mark.slow
def test_two_builds_of_a_commit_give_the_same_bytes_without_untracked_files(repository, tmp_path, monkeypatch):
    pytest.importorskip("build", reason="make release installs it")
    pytest.importorskip("hatchling", reason="make release installs it")
    monkeypatch.setattr(building, "PROJECTS", {".": "tiny"})
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


def test_an_archive_that_lacks_a_committed_file_is_refused(repository, tmp_path):
    (repository / "link").symlink_to("tiny.py")
    _commit(repository)
    archive = tmp_path / "tiny-1.0.tar.gz"
    _pack(archive, repository, ["pyproject.toml", "CHANGELOG.md", "src/ludus/__init__.py", "tiny.py"])
    lacks = rf"lacks {len(building.PROJECTS) - 1} committed files, for example packages/bench/pyproject"
    with pytest.raises(building.ReleaseError, match=lacks):
        building.check_complete(repository, ".", archive)
    _pack(archive, repository, ["pyproject.toml"])
    building.check_complete(repository / "packages", "nemo-gym", archive)


def test_a_version_without_a_section_in_the_changelog_is_refused(repository):
    assert building.version_of(repository) == "1.0"
    building.check_changelog(repository, "1.0")
    for version in ("1", "1.0.1", "1.1"):
        with pytest.raises(building.ReleaseError, match=f"no section for version {version} .*Write `## {version}`"):
            building.check_changelog(repository, version)
    with pytest.raises(building.ReleaseError, match=r"section of 0\.9 in CHANGELOG.md is empty"):
        building.check_changelog(repository, "0.9")


def test_only_the_committed_changelog_counts(repository):
    (repository / "CHANGELOG.md").write_text("# Changelog\n\n## 2.0\n\n- More.\n")
    with pytest.raises(
        building.ReleaseError, match=r"no section for version 2\.0 \(it has: 1\.0 \(2026-01-02\), 0\.9\)"
    ):
        building.check_changelog(repository, "2.0")
    _commit(repository)
    building.check_changelog(repository, "2.0")


def test_distributions_with_different_versions_are_refused(repository):
    (repository / "packages/nemo-gym/pyproject.toml").write_text('version = "1.1"\n')
    _commit(repository)
    with pytest.raises(
        building.ReleaseError,
        match=r"^the versions differ: 1\.0 in src/ludus/__init__.py, .*1\.1 in packages/nemo-gym/",
    ):
        building.version_of(repository)


def test_every_extra_has_a_script_that_says_what_it_shows():
    extras = checking.extras(ROOT)
    setup = (ROOT / "docs" / "get-started" / "setup.md").read_text()
    assert {path.stem for path in uses.FOLDER.iterdir()} == set(extras)
    for extra in extras:
        assert uses.read_use(extra).shows
        assert f"`{extra}`" in setup, f"docs/get-started/setup.md does not name the extra {extra}"
    with pytest.raises(building.ReleaseError, match=r"^no script uses the extra absent: write uses/absent.sh$"):
        uses.read_use("absent")


@pytest.mark.slow
def test_a_script_must_succeed_with_its_extra_and_fail_by_name_without_it(tmp_path):
    clean = checking.CleanEnvironment(tmp_path)
    fine = uses.Use("a", "it works", "ludus-gym[a]", "true")
    failing = uses.Use("b", "it works", "ludus-gym[b]", 'echo "install ludus-gym[b] in $SOURCE" >&2\nfalse')
    uses.check_with(fine, clean, tmp_path)
    uses.check_without(failing, clean, tmp_path)
    with pytest.raises(building.ReleaseError, match=rf"install ludus-gym\[b\] in {tmp_path}$"):
        uses.check_with(failing, clean, tmp_path)
    with pytest.raises(building.ReleaseError, match="its script also succeeds without the extra"):
        uses.check_without(fine, clean, tmp_path)
    with pytest.raises(building.ReleaseError, match=r"^without the extra, nothing says `ludus-gym\[c\]`: "):
        uses.check_without(uses.Use("c", "it works", "ludus-gym[c]", "echo other >&2; false"), clean, tmp_path)


@pytest.mark.slow
def test_a_script_that_finds_another_reward_fails(tmp_path):
    clean = checking.CleanEnvironment(tmp_path)
    run = """mkdir run; echo '{"reward": {"mean": 0.5}, "counts": {"completed": 2}}' > run/metrics.json\n"""
    checks = "expect_reward run 0.5\nexpect_completed run 2\n"
    uses.check_with(uses.Use("a", "", "", run + checks), clean, tmp_path)
    with pytest.raises(building.ReleaseError, match=r"the mean reward of run is 0\.5 instead of 1\.0$"):
        uses.check_with(uses.Use("b", "", "", run + checks + "expect_reward run 1.0"), clean, tmp_path)


def test_an_environment_returns_to_what_was_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(checking, "run", lambda command, folder: (tmp_path / "venv/bin").mkdir(parents=True))
    clean = checking.CleanEnvironment(tmp_path)
    with pytest.raises(building.ReleaseError, match="^the wheel could not be installed: see the check `wheel`$"):
        clean.restore()
    (clean.folder / "core.py").write_text("1")
    (clean.folder / "python").symlink_to(sys.executable)
    clean.save()
    (clean.folder / "core.py").write_text("2")
    (clean.folder / "extra.py").write_text("3")
    (clean.work / "run").mkdir()
    clean.restore()
    assert sorted(path.name for path in clean.folder.iterdir()) == ["bin", "core.py", "python"]
    assert (clean.folder / "core.py").read_text() == "1"
    assert (clean.folder / "python").is_symlink()
    assert list(clean.work.iterdir()) == []


def _commit(root: Path) -> None:
    _git(root, "add", ".")
    _git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "a change")


def _pack(archive: Path, root: Path, names: list[str]) -> None:
    """A source archive that holds these files."""
    with tarfile.open(archive, "w:gz") as packed:
        for name in names:
            packed.add(root / name, f"tiny-1.0/{name}")


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, text=True).stdout

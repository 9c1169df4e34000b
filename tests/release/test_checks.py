"""The checks of a release: what is printed, what a machine cannot check, and what need not be checked again."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path

import building
import installing
import kept
import pytest
import report
import running
import uses


def test_a_failed_check_is_reported_and_the_others_go_on(tmp_path, capsys):
    told = report.Report(tmp_path / "checks.json", 3)
    with told.check("extra first", "it installs"):
        running.run([sys.executable, "-c", "print('half'); raise SystemExit('no such thing')"], tmp_path)
    with told.check("extra second", "it works"):
        pass
    with told.check("nobody needs to read this", "it is quiet", quiet=True):
        pass
    with told.check("extra third", "it works too"):
        raise installing.NotInstallable("third has no file for Python 3.11 on an abacus")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[1/3] 0:00 extra first ..."
    assert lines[1] == "    FAILED extra first: it installs (0 s)"
    assert lines[2].endswith(": no such thing")
    assert lines[3:5] == ["[2/3] 0:00 extra second ...", "    ok extra second: it works (0 s)"]
    assert lines[6:] == [
        "    not checked extra third: it works too (0 s)",
        "        third has no file for Python 3.11 on an abacus",
    ]
    written = json.loads((tmp_path / "checks.json").read_text())
    assert [bool(check["failure"]) for check in written.values()] == [True, False, False, False]
    with pytest.raises(building.ReleaseError, match=r"^1 of 4 checks failed: extra first\. .*checks\.json has what"):
        told.end(["first", "second", "third"])


def test_a_release_ends_with_a_table_of_all_extras_and_the_places_of_its_files(tmp_path, capsys):
    told = report.Report(tmp_path / "checks.json", 2)
    with told.check("extra second", "it works") as check:
        check.packages, check.megabytes = 31, 75.2
    with told.check("extra third", "it works too"):
        raise installing.NotInstallable("third has no file for Python 3.11 on an abacus")
    capsys.readouterr()
    told.end(["first", "second", "third"])
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines if line.startswith("  ")] == [
        "first not checked not asked for",
        "second ok 31 packages, 75 MB",
        "third not checked third has no file for Python 3.11 on an abacus",
        str(tmp_path / "checks.json"),
    ]
    assert lines[-1] == "1 checks passed, 1 could not run on this machine"


def test_a_command_that_fails_is_one_line_with_the_reason(tmp_path):
    with pytest.raises(running.CommandFailed) as raised:
        running.run([sys.executable, "-c", "raise SystemExit('no such thing\\nhint: look above')"], tmp_path)
    assert str(raised.value).endswith(": no such thing")
    assert "\n" not in str(raised.value)


def test_a_command_that_takes_too_long_is_ended_with_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "MINUTES", 0.005)
    with pytest.raises(running.CommandFailed, match=r"timed out after 0\.005 minutes$"):
        running.run(["bash", "-c", "sleep 600 & sleep 600"], tmp_path)  # the first would keep its output open


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of packages, in which pip looks in place of any index."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(folder)), ("CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(f"PIP_{name}", value)
    return folder


@pytest.mark.slow
def test_a_package_for_other_machines_cannot_be_checked_and_one_that_nobody_has_is_a_defect(index, tmp_path):
    with zipfile.ZipFile(index / "elsewhere-1.0-cp312-cp312-win_amd64.whl", "w") as wheel:
        wheel.writestr("elsewhere-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    assert _lacks("elsewhere>=0.5", tmp_path).startswith("elsewhere>=0.5 has no file for Python 3.")
    assert _lacks("elsewhere==2", tmp_path) == ""


@pytest.mark.slow
def test_a_source_that_does_not_compile_cannot_be_checked(index, tmp_path):
    backend = "def build_wheel(*given):\n    raise SystemExit('''error: command 'gcc' failed: No such file''')\n"
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "PKG-INFO": "Metadata-Version: 2.1\nName: source\nVersion: 1.0\n",
        "backend.py": backend,
    }
    with tarfile.open(index / "source-1.0.tar.gz", "w:gz") as packed:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"source-1.0/{name}")
            entry.size = len(text)
            packed.addfile(entry, io.BytesIO(text.encode()))
    said = _lacks("source", tmp_path)
    assert said.endswith("and its source does not compile here: command 'gcc' failed: No such file")
    assert "\n" not in said


def test_an_extra_that_passed_is_not_checked_again_for_the_same_wheel_and_script(tmp_path):
    wheel = tmp_path / "ludus.whl"
    wheel.write_bytes(b"one")
    use, packages = uses.Use("math", "", "", "true"), [{"name": "a", "version": "1"}]
    check = report.Check("it works")
    check.packages, check.megabytes = 1, 5.0
    assert kept.Kept(tmp_path / "checked", wheel).find(use, check) is None
    kept.Kept(tmp_path / "checked", wheel).keep(use, check, packages)
    again = report.Check("it works")
    assert kept.Kept(tmp_path / "checked", wheel).find(use, again) == packages
    assert str(again) == "it works (1 packages, 5 MB, checked by an earlier run)"
    assert kept.Kept(tmp_path / "checked", wheel).find(uses.Use("math", "", "", "false"), again) is None
    wheel.write_bytes(b"two")
    assert kept.Kept(tmp_path / "checked", wheel).find(use, again) is None


def test_a_file_of_an_earlier_run_that_was_cut_short_does_not_count(tmp_path):
    wheel, use = tmp_path / "ludus.whl", uses.Use("math", "", "", "true")
    wheel.write_bytes(b"one")
    kept.Kept(tmp_path / "checked", wheel).keep(use, report.Check(""), [])
    whole = (tmp_path / "checked/math.json").read_text()
    for text in ("", whole[:20], "{}", "[]"):
        (tmp_path / "checked/math.json").write_text(text)
        assert kept.Kept(tmp_path / "checked", wheel).find(use, report.Check("")) is None


def _lacks(requirement: str, folder: Path) -> str:
    """What the machine lacks for a requirement that pip cannot install."""
    with pytest.raises(running.CommandFailed) as raised:
        running.run([sys.executable, "-m", "pip", "install", "--target", str(folder / "to"), requirement], folder)
    return installing.machine_lacks(raised.value.printed, Path(sys.executable), folder)

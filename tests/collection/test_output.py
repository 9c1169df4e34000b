"""Which files a collection overwrites, and which it refuses to touch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

import ludus
from ludus import ScriptedModel, UserError


def lines(rows: list[dict[str, object]]) -> bytes:
    """Rows as JSON lines without a final newline, as an editor may leave them."""
    return b"\n".join(orjson.dumps(row) for row in rows)


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}, {"resume": True, "force": True}])
@pytest.mark.parametrize("count", [1, 3])
def test_an_output_that_is_the_input_is_refused(counter, rows, tmp_path, options, count):
    mine = tmp_path / "mine.jsonl"
    mine.write_bytes(lines(rows(count)))
    with pytest.raises(UserError, match="is the input and would be overwritten. Choose another --output"):
        ludus.collect(counter, model=ScriptedModel(["done"]), input=mine, output=mine, **options)
    (tmp_path / "link.jsonl").symlink_to(mine)
    with pytest.raises(UserError, match="is the input"):
        ludus.collect(counter, model=ScriptedModel(["done"]), input=tmp_path / "link.jsonl", output=mine, **options)
    assert mine.read_bytes() == lines(rows(count))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.jsonl", "mine.jsonl"]


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}, {"resume": True, "overwrite": True}])
def test_a_file_that_is_not_a_collection_is_never_overwritten(counter, rows, tmp_path, options):
    mine = tmp_path / "mine.jsonl"
    mine.write_bytes(lines(rows(3)))
    with pytest.raises(UserError, match=r"mine\.run\.json|Leave one of them out"):
        ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(2), output=mine, **options)
    assert mine.read_bytes() == lines(rows(3))
    assert list(tmp_path.iterdir()) == [mine]


def test_a_refused_run_leaves_the_torn_line_and_a_resume_repairs_it(counter, rows, tmp_path):
    """The files may belong to another run, so only a resume repairs them."""
    ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(3), output=tmp_path)
    journal = tmp_path / "rollouts.jsonl"
    torn = journal.read_bytes()[:-10]
    journal.write_bytes(torn)
    with pytest.raises(UserError, match="already holds a collection"):
        ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(3), output=tmp_path)
    with pytest.raises(UserError, match="different run"):
        ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(4), output=tmp_path, resume=True)
    assert journal.read_bytes() == torn
    ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(3), output=tmp_path, resume=True)
    assert len(journal.read_bytes().splitlines()) == 3


def test_the_error_on_a_full_disk_names_the_journal_and_not_the_metrics(tmp_path: Path):
    """A limit on file sizes stops the journal, and a folder called metrics.json stops the metrics."""
    (tmp_path / "out" / "metrics.json").mkdir(parents=True)
    (tmp_path / "script.yaml").write_text("- done\n")
    code = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000)); sys.argv[0] = 'ludus';"
    code += "from ludus.cli import main; main()"
    words = ["collect", "example_session_state_mgmt", "--model", "scripted:script.yaml", "--output", "out", "-n", "20"]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: cannot write out/rollouts.jsonl: File too large. Recorded rollouts are safe")
    assert last.endswith("--resume")


def test_metrics_that_cannot_be_written_are_reported_and_the_rollouts_are_kept(counter, rows, tmp_path):
    (tmp_path / "metrics.json").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*metrics\.json"):
        ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(2), output=tmp_path)
    assert len((tmp_path / "rollouts.jsonl").read_bytes().splitlines()) == 2

"""Pages that leave the machine: one file, or a static site."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from pathlib import Path

import forked
import pytest
import viewed_runs

from ludus.errors import UserError
from ludus.view.exporting import export_page, publish, published_name
from ludus.view.live import LiveRuns


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> LiveRuns:
    folder = tmp_path_factory.mktemp("runs")
    viewed_runs.write_run(folder / "first", tasks=6)
    viewed_runs.write_hostile_run(folder / "hostile", turns=300)
    found = LiveRuns([folder], {})
    found.index_all()
    return found


def test_a_page_is_one_file_that_only_runs_its_own_script(runs: LiveRuns, tmp_path: Path):
    found = export_page(runs, tmp_path / "report.html", "", None)
    page = (tmp_path / "report.html").read_text()
    assert found["rollouts"] == 6 * 4 + 7
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, flags=re.DOTALL)
    assert [attributes.strip() for attributes, _ in scripts] == [
        'type="application/json" id="ludus-data"',
        'type="module"',
    ]
    digest = base64.b64encode(hashlib.sha256(scripts[1][1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "<" not in scripts[0][1]
    assert "http://" not in page.split("<style>", maxsplit=1)[0]
    answers = json.loads(scripts[0][1])
    key = next(run["key"] for run in answers["/api/runs"]["runs"] if run["name"].endswith("hostile"))
    shown = answers[f"/api/rollout?id=1&run={key}&sort=order"]
    assert shown["items"][4]["content"][0]["text"] == viewed_runs.HOSTILE


@pytest.mark.parametrize("option", ["--export", "--publish"])
def test_a_place_without_runs_is_named_and_nothing_is_written(option: str, tmp_path: Path):
    command = [sys.executable, "-m", "ludus", "view", option, "report.html"]
    made = forked.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert made.returncode != 0
    assert made.stderr.startswith("error: there is no run in this folder. Collect one with: ludus collect")
    assert list(tmp_path.iterdir()) == []


def test_a_page_replaces_a_page_and_nothing_else(runs: LiveRuns, tmp_path: Path):
    for _ in range(2):
        export_page(runs, tmp_path / "report.html", "", None)
    journal = tmp_path / "rollouts.jsonl"
    journal.write_text('{"rollout_id": "a"}\n')
    with pytest.raises(UserError, match="exists already, and ludus view did not write it. Name another file"):
        export_page(runs, journal, "", None)
    assert journal.read_text() == '{"rollout_id": "a"}\n'
    with pytest.raises(UserError, match="Is a directory. Make room or name another place"):
        export_page(runs, tmp_path, "", None)


def test_only_chosen_rollouts_are_exported_and_links_stay_inside(runs: LiveRuns, tmp_path: Path):
    export_page(runs, tmp_path / "report.html", "task:refund-002 repeat:0..1", None)
    page = (tmp_path / "report.html").read_text()
    answers = json.loads(re.findall(r'id="ludus-data">(.*?)</script>', page, flags=re.DOTALL)[0])
    chosen = [answer for name, answer in answers.items() if name.startswith("/api/rollout?")]
    assert len(chosen) == 2
    assert [each["around"]["next"] for each in chosen] == [chosen[1]["id"], None]
    assert {len(each["related"]["repeats"]) for each in chosen} == {2}


def test_a_site_has_a_file_for_every_answer_and_is_not_written_over_other_files(runs: LiveRuns, tmp_path: Path):
    site = tmp_path / "site"
    found = publish(runs, site, "", None)
    assert found["rollouts"] == 6 * 4 + 7
    key = next(iter(runs.runs))
    assert (site / "data" / published_name(f"/api/run?run={key}")).exists()
    publish(runs, site, "", None)  # its own folder may be replaced
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="holds other files"):
        publish(runs, tmp_path / "mine", "", None)


@pytest.mark.slow
def test_the_command_exports_a_page(tmp_path: Path):
    run = viewed_runs.write_run(tmp_path / "run", tasks=2)
    command = [sys.executable, "-m", "ludus", "view", str(run), "--export", str(tmp_path / "r.html"), "--json"]
    done = forked.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rollouts"] == 8
    wrong = forked.run([*command, "--query", "rewrad:1"], capture_output=True, text=True, timeout=300)
    assert wrong.returncode == 2
    assert "Did you mean reward" in wrong.stderr

"""`ludus verify` on unusual files: no row and no field is lost."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ludus import Resources, Response
from ludus.errors import UserError
from ludus.rescore.rescoring import rescore


class Anything(Resources):
    """Gives every answer the reward 1, except `crash`."""

    async def verify(self, task: object, response: Response) -> float:
        if response.output_text == "crash":
            raise ValueError("boom")
        return 1.0


ROW = '{"responses_create_params":{"input":"x"},"response":"yes","kept":%s}'


def scored(path: Path, text: str, encoding: str = "utf-8") -> dict[str, object]:
    path.write_text(text + "\n", encoding=encoding)
    rescore(path, Anything, output=path)
    (line,) = path.read_text(encoding="utf-8").splitlines()
    found: dict[str, object] = json.loads(line)
    return found


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 123456789012345678901234567890])
def test_integers_of_any_size_are_written_unchanged(tmp_path: Path, number: int):
    found = scored(tmp_path / "rows.jsonl", ROW % f'{{"deep":[{number}]}}')
    assert (found["reward"], found["kept"]) == (1.0, {"deep": [number]})


def test_a_row_whose_verifier_raises_keeps_its_large_integers(tmp_path: Path):
    found = scored(tmp_path / "rows.jsonl", (ROW % 2**70).replace("yes", "crash"))
    assert (found["kind"], found["kept"]) == ("crash", 2**70)


def test_a_full_disk_leaves_the_input_unchanged_and_the_error_says_to_make_room(tmp_path: Path):
    text = (ROW % 1 + "\n") * 2000
    (tmp_path / "rows.jsonl").write_text(text)
    words = [sys.executable, "-m", "ludus", "verify", "rows.jsonl", "--env", "string_match", "-o", "rows.jsonl"]
    limited = f"ulimit -f 100; exec {shlex.join(words)}"
    done = subprocess.run(["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "make room, then run it again" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / "rows.jsonl").read_text() == text


def test_a_byte_order_mark_is_not_part_of_the_first_row(tmp_path: Path):
    assert scored(tmp_path / "rows.jsonl", ROW % 1, "utf-8-sig")["reward"] == 1.0


@pytest.mark.parametrize("value", ["NaN", '"\\ud800"', "1e999"])
def test_a_row_with_json_that_only_python_accepts_is_scored(tmp_path: Path, value: str):
    assert scored(tmp_path / "rows.jsonl", ROW % value)["reward"] == 1.0


def test_a_line_that_is_not_json_is_kept_with_its_failure(tmp_path: Path):
    found = scored(tmp_path / "rows.jsonl", '{"half": ')
    assert (found["kind"], found["text"]) == ("bad_row", '{"half": ')
    assert "reward" not in found


def test_rewriting_a_file_keeps_its_symbolic_link_and_its_mode(tmp_path: Path):
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    real.write_text(ROW % 1 + "\n")
    real.chmod(0o600)
    link.symlink_to(real)
    rescore(link, Anything, output=link)
    assert link.is_symlink()
    assert json.loads(real.read_text())["reward"] == 1.0
    assert os.stat(real).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("there", [True, False])
def test_a_file_without_rows_leaves_the_output_unchanged(tmp_path: Path, there: bool):
    (tmp_path / "empty.jsonl").write_text("\n")
    output = tmp_path / "out.jsonl"
    if there:
        output.write_text("mine\n")
    with pytest.raises(UserError, match="holds no rows"):
        rescore(tmp_path / "empty.jsonl", Anything, output=output)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["empty.jsonl", "out.jsonl"][: 1 + there]
    assert not there or output.read_text() == "mine\n"

"""Rows with pictures go through every dialect, record, export and page with the picture whole."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import ludus_lab.pictures
import pytest
from ludus_data.export.exporting import export

import ludus
from ludus import ScriptedModel
from ludus.dialects.chat import request_from_chat, to_chat
from ludus.dialects.gemini import request_from_gemini
from ludus.dialects.messages import request_from_messages
from ludus.environment import Environment
from ludus.rescore.rescoring import rescore
from ludus.view.exporting import export_page
from ludus.view.live import LiveRuns

ROWS = [
    json.loads(line) for line in Path(ludus_lab.pictures.__path__[0], "data/example.jsonl").read_text().splitlines()
][:2]
TASK = Environment.load("pictures").task(ROWS[0])
URL = TASK.input[0]["content"][1]["image_url"]
DATA = URL.partition(",")[2]

#: What carries whole conversations. `csv` has a cell of text for the prompt, and says so.
CHAT_FORMATS = ["sft", "dpo", "kto", "rm", "grpo", "openai", "nemo", "nemo-preference", "nemo-customizer", "atif"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run with a right and a wrong answer to each of two pictures."""
    folder = tmp_path_factory.mktemp("runs") / "pictures"

    def answer(request: Any) -> str:
        text = str(request.input)
        right = next(row["expected_answer"] for row in ROWS if row_url(row) in text)
        return f"I see. <answer>{right if (request.session or '').endswith('0') else 'none'}</answer>"

    result = ludus.collect("pictures", model=ScriptedModel(answer), input=ROWS, repeats=2, output=folder)
    assert sorted(rollout.reward for rollout in result.rollouts) == [0.0, 0.0, 1.0, 1.0]
    return folder


def row_url(row: dict[str, Any]) -> str:
    url: str = row["responses_create_params"]["input"][0]["content"][1]["image_url"]
    return url


def images(items: list[dict[str, Any]]) -> list[str]:
    """The URLs of the pictures in items."""
    parts = [part for item in items if isinstance(item.get("content"), list) for part in item["content"]]
    return [part["image_url"] for part in parts if part.get("type") == "input_image"]


def test_chat_completions_carry_the_picture_both_ways():
    lost: list[str] = []
    body = to_chat(TASK.input, {}, lost=lost)
    assert body["messages"][0]["content"][1]["image_url"]["url"] == URL
    assert images(request_from_chat({"model": "m", **body}, lost=lost)["input"]) == [URL]
    assert lost == []


def test_a_picture_in_the_anthropic_dialect_reaches_the_model():
    source = {"type": "base64", "media_type": "image/png", "data": DATA}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "How many?"}]
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
    lost: list[str] = []
    assert images(request_from_messages(body, lost=lost)["input"]) == [URL]
    assert lost == []


def test_a_picture_in_the_gemini_dialect_reaches_the_model():
    parts = [{"inlineData": {"mimeType": "image/png", "data": DATA}}, {"text": "How many?"}]
    lost: list[str] = []
    assert images(request_from_gemini({"contents": [{"role": "user", "parts": parts}]}, lost=lost)["input"]) == [URL]
    assert lost == []


def test_the_record_holds_the_picture_and_can_be_verified_again(run):
    lines = [json.loads(line) for line in (run / "rollouts.jsonl").read_text().splitlines()]
    assert {images(line["responses_create_params"]["input"])[0] for line in lines} == set(map(row_url, ROWS))
    changes = rescore(run, "pictures")
    assert (len(lines), changes.counts["changed"]) == (4, 0)


def test_the_viewer_s_page_holds_every_picture(run, tmp_path):
    runs = LiveRuns([run.parent], {})
    runs.index_all()
    export_page(runs, tmp_path / "report.html", "", None)
    page = (tmp_path / "report.html").read_text()
    answers = json.loads(page.partition('id="ludus-data">')[2].partition("</script>")[0])
    prompts = [answer["prompt"] for address, answer in answers.items() if address.startswith("/api/rollout?")]
    assert {images(prompt)[0] for prompt in prompts} == set(map(row_url, ROWS))


@pytest.mark.parametrize("to", CHAT_FORMATS)
def test_an_export_of_conversations_holds_every_picture(run, tmp_path, to):
    target = tmp_path / "out.jsonl"
    export(run, to, target)
    text = target.read_text()
    assert all(row_url(row) in text for row in ROWS)


def test_a_dataset_folder_holds_every_picture(run, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    export(run, "hf", tmp_path / "out")
    tables = [parquet.read_table(file).to_pylist() for file in sorted((tmp_path / "out").rglob("*.parquet"))]
    text = json.dumps(tables, default=str)
    assert all(row_url(row).partition(",")[2] in text for row in ROWS)


def test_a_format_without_pictures_leaves_the_rollouts_out_and_says_why(run, tmp_path):
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install 'ludus-gym[data]'")
    exported = export(run, "verl", tmp_path / "out.parquet")
    assert dict(exported.left_out) == {"content that is not text": 4}


def test_a_trajectory_in_atif_has_the_picture_as_a_part(run, tmp_path):
    export(run, "atif", tmp_path / "out.jsonl")
    step = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["steps"][0]
    assert [part["type"] for part in step["message"]] == ["text", "image"]
    assert step["message"][1]["source"] == {"media_type": "image/png", "path": URL}
    assert base64.b64decode(step["message"][1]["source"]["path"].partition(",")[2]).startswith(b"\x89PNG")

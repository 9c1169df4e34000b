"""Tools that return pictures: as parts of the output's item, in chat requests, and when a record is judged again."""

from __future__ import annotations

import json
from pathlib import Path

import ludus
from ludus import Resources, Response, ScriptedModel, tool
from ludus.dialects.chat import to_chat
from ludus.rescore.rescoring import rescore
from ludus.response import PicturedText

PICTURE = "data:image/png;base64,iVBORw0KGgo="
ROW = {"responses_create_params": {"input": [{"role": "user", "content": "Look."}]}}


class Camera(Resources):
    """A tool that shows a picture beside its text."""

    async def open(self, task: ludus.Task) -> None:
        self.looks = 0

    @tool
    async def look(self) -> str:
        """Look."""
        self.looks += 1
        return PicturedText("A cat.", PICTURE)

    async def verify(self, task: ludus.Task, response: Response) -> float:
        return float(self.looks == 1)


def collected(folder: Path) -> dict:
    ludus.collect(Camera, model=ScriptedModel([{"call": "look"}, "A cat."]), input=[ROW], output=folder)
    return json.loads((folder / "rollouts.jsonl").read_text())


def test_the_model_gets_the_text_and_the_picture(tmp_path):
    output = collected(tmp_path / "run")["response"]["output"]
    parts = [{"type": "input_text", "text": "A cat."}, {"type": "input_image", "image_url": PICTURE, "detail": "auto"}]
    assert output[1]["output"] == parts
    (message,) = [message for message in to_chat(output, {})["messages"] if message["role"] == "tool"]
    assert message["content"][1] == {"type": "image_url", "image_url": {"url": PICTURE, "detail": "auto"}}


def test_a_record_with_pictures_is_judged_again_without_drift(tmp_path):
    row = collected(tmp_path / "run")
    for text, has_drifted in (("A cat.", False), ("A dog.", True)):
        row["response"]["output"][1]["output"][0]["text"] = text
        (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
        rescore(tmp_path / "rows.jsonl", Camera, output=tmp_path / f"again-{has_drifted}.jsonl")
        again = json.loads((tmp_path / f"again-{has_drifted}.jsonl").read_text())
        assert again["reward"] == 1.0
        assert ("replay_drift" in again) == has_drifted

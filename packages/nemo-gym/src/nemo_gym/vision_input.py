"""Prompts with an image."""

from __future__ import annotations

import base64
import io
import mimetypes
from pathlib import Path
from typing import Any

from nemo_gym.prompt import PromptConfig, fill_prompt


def build_image_input(prompt_config: PromptConfig, question: str, image: Any) -> list[dict[str, Any]]:
    """The messages of a prompt, filled with `question`, with the image in front of the user's text.

    `image` is a URL, a path, the bytes of a file, or an image of Pillow.
    """
    messages: list[dict[str, Any]] = [dict(message) for message in fill_prompt(prompt_config, {"question": question})]
    text = messages[-1]["content"]
    messages[-1]["content"] = [
        {"type": "input_image", "image_url": _url(image), "detail": "auto"},
        {"type": "input_text", "text": text},
    ]
    return messages


def _url(image: Any) -> str:
    if isinstance(image, str):
        return image if image.startswith(("http://", "https://", "data:")) else _url(Path(image))
    if isinstance(image, Path):
        return _data_url(image.read_bytes(), mimetypes.guess_type(image.name)[0] or "image/png")
    if isinstance(image, bytes):
        return _data_url(image, _type_of(image))
    content = io.BytesIO()
    image.save(content, format="PNG")
    return _data_url(content.getvalue(), "image/png")


def _data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def _type_of(data: bytes) -> str:
    """The type of an image by its first bytes."""
    starts = {b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"BM": "image/bmp"}
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in starts.items() if data.startswith(start)), "image/png")

"""`nemo_gym.profiling` and `nemo_gym.vision_input`."""

from __future__ import annotations

import base64
import pstats
from pathlib import Path

import pytest
from nemo_gym.profiling import Profiler
from nemo_gym.prompt import PromptConfig
from nemo_gym.vision_input import build_image_input
from pydantic import ValidationError


def slow_function() -> int:
    return sum(range(1000))


def other_function() -> int:
    return slow_function()


def test_a_profile_shows_the_functions_that_ran(tmp_path: Path):
    profiler = Profiler(name="server", base_profile_dir=tmp_path / "profiles", required_str="slow_function")
    profiler.start()
    other_function()
    profiler.stop()
    slow_function()
    profiler.dump()
    table = (tmp_path / "profiles" / "server.log").read_text()
    assert "slow_function" in table
    assert "other_function" not in table
    assert "cumtime" in table
    counts = pstats.Stats(str(tmp_path / "profiles" / "server.prof")).get_stats_profile().func_profiles
    assert counts["slow_function"].ncalls == "1"
    assert "other_function" in counts


def test_a_profile_goes_on_after_it_was_written(tmp_path: Path):
    profiler = Profiler(name="server", base_profile_dir=tmp_path)
    profiler.start()
    slow_function()
    profiler.dump()
    other_function()
    profiler.stop()
    profiler.stop()
    profiler.dump()
    counts = pstats.Stats(str(tmp_path / "server.prof")).get_stats_profile().func_profiles
    assert counts["slow_function"].ncalls == "2"


def test_a_profile_that_never_started_says_so(tmp_path: Path):
    with pytest.raises(RuntimeError, match="profiler x has not started"):
        Profiler(name="x", base_profile_dir=tmp_path).dump()
    with pytest.raises(ValidationError):
        Profiler(name="two words", base_profile_dir=tmp_path)


PROMPT = PromptConfig(user="Look: {question}", system="You see.")
JPEG = b"\xff\xd8\xffx"
PNG = b"\x89PNG\r\n\x1a\n"


def test_a_prompt_holds_the_image_and_the_question():
    system, user = build_image_input(PROMPT, "what?", "https://a.b/c.png")
    assert system == {"role": "system", "content": "You see."}
    assert user["role"] == "user"
    image, text = user["content"]
    assert (image["type"], image["image_url"]) == ("input_image", "https://a.b/c.png")
    assert text == {"type": "input_text", "text": "Look: what?"}


def test_images_become_data_urls_of_their_type(tmp_path: Path):
    (tmp_path / "a.jpg").write_bytes(JPEG)

    class Picture:
        def save(self, file, format: str) -> None:
            file.write(PNG)

    def url(image: object) -> str:
        return build_image_input(PROMPT, "q", image)[-1]["content"][0]["image_url"]

    assert url(PNG) == url(Picture()) == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    jpeg = f"data:image/jpeg;base64,{base64.b64encode(JPEG).decode()}"
    assert url(tmp_path / "a.jpg") == url(str(tmp_path / "a.jpg")) == url(JPEG) == jpeg
    assert url(b"RIFF....WEBP").startswith("data:image/webp;")

from pathlib import Path


def test_outputs():
    assert Path("/app/one").read_text() == "1\n"

"""Replies of a model server have everything that clients demand of a Responses object."""

from __future__ import annotations

import pytest

from ludus.http.replies import envelope
from ludus.response import Response


@pytest.mark.parametrize("given", [None, "", 0, 7, ["resp"], "resp_0"])
def test_an_answer_without_a_usable_id_gets_one(given: object) -> None:
    sent = envelope(Response({"id": given, "output": []}), {}, "model", tokens=False)
    assert isinstance(sent["id"], str)
    assert sent["id"].startswith("resp_")
    assert sent["id"] != "resp_0"


def test_an_answer_keeps_the_id_that_it_came_with() -> None:
    assert envelope(Response({"id": "resp_7", "output": []}), {}, "model", tokens=False)["id"] == "resp_7"

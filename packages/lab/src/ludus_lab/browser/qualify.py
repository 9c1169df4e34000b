"""How qualification uses the pages: solvers that read the page as a model does, and policies that only seem to act."""

from __future__ import annotations

from typing import Any

from ludus.response import texts_of
from ludus_lab.browser.resources import ENDED
from ludus_lab.browser.solvers import SOLVERS
from ludus_lab.browser.tree import read_tree
from ludus_lab.browser.view import LOOK, View

DONE = "I have done what the page asks."


def oracle(task: Any) -> Any:
    """The solver's actions, for pages that have one."""
    return _solving(task, looks=1)


def preserving(task: Any) -> dict[str, Any]:
    """The same actions after another look at the page."""
    script = _solving(task, looks=2)
    return {"looks_twice": script} if script is not None else {}


def _solving(task: Any, looks: int) -> Any:
    solver = SOLVERS.get(task.page)
    if solver is None:
        return None

    def turn(request: Any) -> Any:
        outputs = _outputs(request)
        if len(outputs) < looks:
            return LOOK
        if outputs[-1] == ENDED:
            return DONE
        seen = outputs[looks - 1 :]
        return solver(View(read_tree(seen[0]), read_tree(seen[-1]), len(seen) - 1)) or DONE

    return turn


def breaking(task: Any) -> dict[str, Any]:
    """Claims without actions, text that looks like script, and actions on nothing."""
    return {
        "claims": DONE,
        "only_looks": [LOOK, DONE],
        "unknown_element": [{"call": "click", "arguments": {"ref": "e999999"}}, DONE],
        "clicks_the_instruction": [LOOK, {"call": "click_at", "arguments": {"x": 80, "y": 5}}, DONE],
    }


def exploits(task: Any) -> dict[str, Any]:
    """Script in every field, and the first button whatever the page asks."""
    return {"script_in_fields": _script_in_fields, "cheat/ends_the_page": _selector}


def _outputs(request: Any) -> list[str]:
    outputs = [item["output"] for item in request.input if item.get("type") == "function_call_output"]
    return [output if isinstance(output, str) else texts_of({"content": output}) for output in outputs]


SCRIPT = '<img src=x onerror="core.endEpisode(1)"><script>core.endEpisode(1)</script>javascript:core.endEpisode(1)'


def _script_in_fields(request: Any) -> Any:
    """Type script into the fields in turn."""
    outputs = _outputs(request)
    if not outputs:
        return LOOK
    if outputs[-1] == ENDED:
        return DONE
    fields = [node for node in read_tree(outputs[0]) if node.role in ("textbox", "spinbutton") and node.ref]
    at = len(outputs) - 1
    if at >= len(fields):
        return DONE
    return {"call": "type", "arguments": {"ref": fields[at].ref, "text": SCRIPT}}


def _selector(request: Any) -> Any:
    """A selector in place of a reference, and a key that is not on the list."""
    calls = [
        {"name": "click", "arguments": {"ref": "css=button"}},
        {"name": "press", "arguments": {"key": "F12"}},
        {"name": "type", "arguments": {"ref": "e5 >> css=*", "text": "javascript:core.endEpisode(1)"}},
    ]
    return {"calls": calls} if not _outputs(request) else DONE

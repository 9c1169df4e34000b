"""The page of errors: what each stage and kind of failure means, and every message with what to do about it."""

from __future__ import annotations

import re
from itertools import groupby

from error_reasons import source_reasons
from error_sources import SourceError, source_errors
from page_text import code, escape, table

from ludus.runtime.failure_kinds import FAILURE_KINDS

#: The stages of a rollout: what was running, and where to look first.
STAGES = {
    "open": ("`open` of the resources: the session was being prepared", "the row, and what the environment needs"),
    "model": ("a call of the policy's model", "the model's server and its key"),
    "tool": ("a tool call", "the tool's code, or the server behind it"),
    "user": ("a call of the model that plays the user", "`agent.user` and its server"),
    "verify": ("`verify`: the answer was being judged", "the verifier, its judge or its sandbox"),
    "close": ("`close` of the resources", "what the environment cleans up"),
    "agent": ("the agent itself, or the collection around it", "the agent's program and the collection's limits"),
}

#: What to do about messages that do not say it themselves, by what they say.
_CURES = [
    (r"^cannot (read|write|replace|keep)", "Check that the path exists, and that you may read and write there"),
    (r"holds no (rows|rollout|documents|JSON)", "Name a file that holds some"),
    (r"there is no file", "Check the path"),
    (r"(must be|must begin|must hold|must look|takes a number|is not a number|at least|at most|is not valid)",
     "Write the value in that form"),
    (r"is (not )?a subclass|an environment is a name", "Pass a class or a name of that kind"),
    (r"is more than", "Swap the two values"),
    (r"nested too deep", "Write the value with fewer levels"),
    (r"(cannot import|cannot be made|cannot be played|gives no puzzles|has no taskset|settings of|--log-to)",
     "The end of the message is the library's own: correct what it names"),
    (r"too large to", "Look at the verifier: such a reward is a mistake"),
    (r"(sandbox provider|Ray Serve|did not start|keeps dying|cannot index)", "The end of the message says what failed"),
    (r"(^line |rollout|feed|sample|answer to task|rollouts of|damaged)",
     "Look at the run's failures: `ludus show RUN --failed`"),
    (r"names no environment", "Name one in the server's settings"),
    (r"is \{where\}, not a file", "Choose a dataset that is a file, with `--dataset`"),
    (r"(not supported|cannot be written|columns|cells|unique number|\{where\}|\{path\}|\{part\}|\{name\}: )",
     "Correct what the message names"),
]  # fmt: skip

#: What each folder of the source is about; a heading of the page.
ROOMS = {
    "words": "Environments, tasks and models",
    "agents": "Agents",
    "cli": "The command line",
    "collection": "Collecting",
    "compare": "ludus compare",
    "cookbook": "Recipes of the cookbook",
    "data": "Data",
    "dialects": "Answers of model servers",
    "environments": "Single environments",
    "graders": "Graders and judges",
    "http": "HTTP",
    "integrations": "MCP",
    "models": "Models",
    "qualify": "ludus qualify",
    "remote": "Servers that you connect to",
    "rescore": "ludus verify",
    "runtime": "Settings, keys and imports",
    "sandbox": "Sandboxes",
    "serve": "Servers that you start",
    "store": "Files of a run",
    "train": "Training",
    "view": "ludus view",
}


_KIND_COLUMNS = ["kind", "what happened", "what to do", "retried", "stops the run", "costs an attempt"]
_KINDS = (
    "A call of a model that fails with a retried kind is tried again (`model.retries`). A run stops if its first "
    "rollouts all fail with a kind that stops it. A failure that costs no attempt does not count against "
    "`--max-attempts`."
)
_REASONS = (
    "Messages with a `{problem}`, a `{cause}` or an `{error}` quote one of these, or what another error or a library "
    "said. The message around it says what to do."
)


def errors_page() -> str:
    """The page's body: stages, kinds, and every message by room."""
    found = source_errors()
    parts = ["## Stages", table(["stage", "what was running", "where to look"], _stage_rows())]
    parts += ["## Kinds", _KINDS, table(_KIND_COLUMNS, _kind_rows())]
    for room, errors in groupby(sorted(found, key=_order), key=lambda each: each.room):
        shown = [each for each in errors if not each.passed_on]
        if shown:
            parts += [f"## {ROOMS[room]}", table(["message", "what to do", "raised in"], map(_row, shown))]
    parts += ["## Reasons", _REASONS, table(["reason", "written in"], _reason_rows())]
    parts += ["## Messages of others", _passed_on([each for each in found if each.passed_on])]
    return "\n\n".join(parts)


def cure(error: SourceError) -> str:
    """What to do about an error, as Markdown; an empty text where nothing is known."""
    if error.hint:
        return escape(error.hint)
    kind = error.kind if error.kind in FAILURE_KINDS else re.sub(r"http_.*", "http_500", error.kind)
    if kind in FAILURE_KINDS:
        return FAILURE_KINDS[kind].remedy
    if error.type == "Refusal":
        return "Correct the request; 5xx: try again later"
    return next((words for pattern, words in _CURES if re.search(pattern, error.message)), "")


def _row(error: SourceError) -> list[str]:
    kind = f"{code(error.kind)}: " if error.kind and "{" not in error.kind else ""
    return [kind + code(error.message), cure(error), code(f"{error.file}:{error.line}")]


def _passed_on(errors: list[SourceError]) -> str:
    where = ", ".join(code(f"{each.file}:{each.line}") for each in errors)
    return f"Some places pass on the message of another error, of a library or of a server as it is: {where}."


def _reason_rows() -> list[list[str]]:
    return [[code(each.text), code(f"{each.file}:{each.line}")] for each in source_reasons()]


def _order(error: SourceError) -> tuple[int, str, int]:
    return list(ROOMS).index(error.room), error.file, error.line


def _stage_rows() -> list[list[str]]:
    return [[code(stage), *words] for stage, words in STAGES.items()]


def _kind_rows() -> list[list[str]]:
    return [
        [code(name), kind.meaning, kind.remedy, *map(_yes, (kind.retried, kind.stops_run, kind.costs_attempt))]
        for name, kind in sorted(FAILURE_KINDS.items())
    ]


def _yes(value: object) -> str:
    return "yes" if value else ""

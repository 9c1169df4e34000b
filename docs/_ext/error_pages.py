"""The page of errors: what each stage and kind of failure means, and every message with what to do about it."""

from __future__ import annotations

import re
from itertools import groupby

from error_reasons import source_reasons
from error_sources import SourceError, source_errors
from page_text import code, escape, table

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

#: The kinds of failure: what happened, and what to do.
KINDS = {
    "aborted": ("the model's server ended the answer early", "Look at the server's log; `--resume` plays it again"),
    "ambiguous_match": ("several rows have the prompt of a stored rollout", "Give the rows a `task_id`"),
    "at_capacity": ("the environment's server takes no more sessions", "Lower `--concurrency`"),
    "bad_fork": ("`fork` returned no session of its own", "Return a new object from `fork`"),
    "bad_game": ("the game broke the rules of its interface", "Mend the game: the cause names the value"),
    "bad_prompt": ("a scripted judge cannot read the prompt", "Use the environment's own judge prompt"),
    "bad_request": ("the request cannot be sent as it is", "Correct the row's `responses_create_params`"),
    "bad_response": ("a server sent something that is no answer", "Look at the server; the cause quotes what it sent"),
    "bad_row": ("the row cannot be played or judged", "Correct the row: `ludus data validate` names field and line"),
    "bad_step": ("a game's `step` returned no `Step`", "Return `Step(...)`"),
    "bad_tools": ("the tools of the session cannot be offered", "Correct the tools that the cause names"),
    "bad_verdict": ("`verify` gave no finite number", "Return a number or a `Verdict`"),
    "cannot_fork": ("the session cannot be copied", "Define `fork` in the resources"),
    "cannot_judge": ("the program could not be judged", "Read the cause; `--resume` plays it again"),
    "crash": ("code raised an exception, or a process died", "Read `where` and the cause: a bug in that code"),
    "disconnected": ("a server dropped the connection", "Look at the server's log; `--resume` plays it again"),
    "drift": (
        "a recorded rollout does not come out the same",
        "Use the environment as it was then",
    ),
    "enough": ("enough other rollouts of the task had ended", "Nothing: `--enough` ended it on purpose"),
    "exhausted": ("a recorded judge has no reply left", "Record more replies"),
    "exit": ("the agent's program ended with an error", "Read the program's output in the cause"),
    "group_deadline": ("the time of the task's group was over", "Raise `--group-deadline`, if you want slow rollouts"),
    "group_incomplete": ("the group has too few answers to compare", "Use `--repeats 2` or more; look at what failed"),
    "group_late": ("the rollout ended after its group was judged", "Raise `limits.group`"),
    "http_401": ("a server refused the key", "Check the key, which comes from the environment or `env.yaml`"),
    "http_403": ("the key may not do this", "Check what the key may do"),
    "http_404": ("the server knows no such address or model", "Check the URL and the model's name"),
    "http_429": ("the server asks for fewer requests", "Lower `--concurrency`, or raise `model.retries`"),
    "http_500": ("the server failed", "Look at the server's log; `--resume` plays it again"),
    "judge": ("the judge gave no verdict that can be read", "Look at the judge's replies; use a stronger judge"),
    "no_calls": ("the agent's program never called the model", "Make it use the URL in its environment variables"),
    "no_compiler": ("the sandbox has no compiler for the program", "Install the compiler that the cause names"),
    "no_judge": ("the answer needs a judge and none is set", "Set one: `--set resources.judge=SPEC`"),
    "no_match": ("no row belongs to a stored rollout", "Pass the rows that the rollout was made from"),
    "no_program": ("the agent's program cannot be started", "Check `agent.command`"),
    "no_recording": ("the recorded run has no such answer", "Replay the same rows, repeats and seed"),
    "no_reward": ("the environment gave no reward", "Look at the environment: it must reward what it accepts"),
    "no_rule": ("no rule of the script fits the request", "Add a rule, or one without `when`"),
    "no_user": ("the model that plays the user is missing or says nothing", "Set `agent.user`"),
    "not_installed": ("code needs a package that is missing", "Install it, or correct the import"),
    "not_played": ("the model never answered", "Look at what the model sent"),
    "out_of_memory": ("the model's memory is full", "Lower `max_batch` or `max_output_tokens`"),
    "out_of_turn": ("the game is over or has not begun", "Let the agent stop when the game is over"),
    "refused": ("nothing listens at the address", "Start the server, or correct its URL"),
    "sandbox": ("the sandbox failed, and no program is to blame", "Run `ludus doctor`; `--resume` plays it again"),
    "session_lost": ("the session is over", "Open a new session"),
    "stale": ("the policy has moved on too far", "Nothing: `--max-staleness` ended it on purpose"),
    "timeout": ("a step took longer than its limit", "Raise the limit: `--set limits.STAGE=SECONDS`"),
    "too_large": ("a reply is larger than allowed", "Raise `model.max_reply_bytes`, or mend the server"),
    "undecided": ("two expressions cannot be compared in time", "Set a judge, or leave the row out"),
    "unsupported": ("the model or the agent cannot do this", "Use another model, or leave the feature out of the row"),
    "wrong_thread": ("the scorer works on the main thread only", "Collect in this process, without `--workers`"),
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
    "bench": "ludus bench",
    "cli": "The command line",
    "collection": "Collecting",
    "compare": "ludus compare",
    "cookbook": "Recipes of the cookbook",
    "credit": "ludus credit",
    "data": "Data",
    "dialects": "Answers of model servers",
    "environments": "Single environments",
    "graders": "Graders and judges",
    "http": "HTTP",
    "integrations": "MCP, OpenEnv and verifiers",
    "models": "Models",
    "profile": "ludus profile",
    "qualify": "ludus qualify",
    "remote": "Servers that you connect to",
    "rescore": "ludus verify and ludus recall",
    "runtime": "Settings, keys and imports",
    "sandbox": "Sandboxes",
    "serve": "Servers that you start",
    "store": "Files of a run",
    "telemetry": "Telemetry",
    "train": "Training",
    "view": "ludus view",
}


_REASONS = (
    "Messages with a `{problem}`, a `{cause}` or an `{error}` quote one of these, or what another error or a library "
    "said. The message around it says what to do."
)


def errors_page() -> str:
    """The page's body: stages, kinds, and every message by room."""
    found = source_errors()
    parts = ["## Stages", table(["stage", "what was running", "where to look"], _stage_rows())]
    parts += ["## Kinds", table(["kind", "what happened", "what to do"], _kind_rows())]
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
    kind = re.sub(r"http_.*", "http_500", error.kind)
    if kind in KINDS:
        return KINDS[kind][1]
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
    return [[code(kind), *words] for kind, words in KINDS.items()]

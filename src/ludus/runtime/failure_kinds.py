"""Kinds of failure: what each means, what follows from it, and what to do about it.

Collections, the retries of HTTP calls and the page of errors read this table. An author's code may raise a `Failure` of
a kind of its own: such a kind is not retried, costs an attempt and never stops a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class FailureKind:
    """One kind of failure. `meaning` and `remedy` are Markdown, for the page of errors."""

    meaning: str
    remedy: str
    #: the budget of `model.retries` from which a call that fails so is tried again
    retried: Literal["busy", "server", "dropped"] | None = None
    #: whether a run stops if its first rollouts all fail so: the others would, too
    stops_run: bool = False
    #: whether the user's own limit ended the rollout: nothing failed
    ends_early: bool = False
    #: whether the cause of such a failure already ends with what to do
    cause_says_remedy: bool = False

    @property
    def costs_attempt(self) -> bool:
        """Whether it counts against `--max-attempts` of its rollout."""
        return not (self.stops_run or self.ends_early)

    @property
    def hint(self) -> str:
        """What to do, as plain text after the cause."""
        return "" if self.cause_says_remedy else self.remedy.replace("`", "")


_OTHER = FailureKind("", "")
_SERVER_FAILED = FailureKind("the server failed", "Look at the server's log; `--resume` plays it again", "server")
_BUSY = FailureKind("the server asks for fewer requests", "Lower `--concurrency`, or raise `model.retries`", "busy")

FAILURE_KINDS = {
    "aborted": FailureKind(
        "the model's server ended the answer early", "Look at the server's log; `--resume` plays it again"
    ),
    "ambiguous_match": FailureKind("several rows have the prompt of a stored rollout", "Give the rows a `task_id`"),
    "at_capacity": FailureKind("the environment's server takes no more sessions", "Lower `--concurrency`"),
    "bad_fork": FailureKind("`fork` returned no session of its own", "Return a new object from `fork`"),
    "bad_game": FailureKind("the game broke the rules of its interface", "Mend the game: the cause names the value"),
    "bad_prompt": FailureKind("a scripted judge cannot read the prompt", "Use the environment's own judge prompt"),
    "bad_request": FailureKind("the request cannot be sent as it is", "Correct the row's `responses_create_params`"),
    "bad_response": FailureKind(
        "a server sent a reply that cannot be read as an answer", "Look at the server; the cause quotes what it sent"
    ),
    "bad_row": FailureKind(
        "the row cannot be played or judged", "Correct the row: `ludus data validate` names field and line"
    ),
    "bad_step": FailureKind("a game's `step` returned no `Step`", "Return `Step(...)`"),
    "bad_tools": FailureKind("the tools of the session cannot be offered", "Correct the tools that the cause names"),
    "bad_verdict": FailureKind("`verify` gave no finite number", "Return a number or a `Verdict`"),
    "cannot_fork": FailureKind("the session cannot be copied", "Define `fork` in the resources"),
    "cannot_judge": FailureKind("the program could not be judged", "Read the cause; `--resume` plays it again"),
    "crash": FailureKind(
        "code raised an exception, or a process died", "Read `where` and the cause: a bug in that code"
    ),
    "disconnected": FailureKind(
        "a server dropped the connection", "Look at the server's log; `--resume` plays it again", retried="dropped"
    ),
    "drift": FailureKind("a recorded rollout does not come out the same", "Use the environment as it was then"),
    "enough": FailureKind(
        "enough other rollouts of the task had ended", "Nothing: `--enough` ended it on purpose", ends_early=True
    ),
    "exit": FailureKind("the agent's program ended with an error", "Read the program's output in the cause"),
    "group_deadline": FailureKind(
        "the time of the task's group was over", "Raise `--group-deadline`, if you want slow rollouts", ends_early=True
    ),
    "group_incomplete": FailureKind(
        "the group has too few answers to compare", "Use `--repeats 2` or more; look at what failed"
    ),
    "group_late": FailureKind("the rollout ended after its group was judged", "Raise `limits.group`"),
    "http_401": FailureKind(
        "a server refused the key", "Check the key, which comes from the environment or `env.yaml`", stops_run=True
    ),
    "http_403": FailureKind("the key may not do this", "Check what the key may do", stops_run=True),
    "http_404": FailureKind(
        "the server knows no such address or model",
        "Check the URL, and the name of the model if it is one",
        stops_run=True,
    ),
    **dict.fromkeys(("http_429", "http_503", "http_529"), _BUSY),
    **dict.fromkeys(("http_408", "http_425", "http_500", "http_502", "http_504"), _SERVER_FAILED),
    "judge": FailureKind(
        "the judge gave no verdict that can be read", "Look at the judge's replies; use a stronger judge"
    ),
    "judge_failed": FailureKind(
        "a resources server could not ask its judge", "Read the cause: the judge's server, key or model"
    ),
    "no_calls": FailureKind(
        "the agent's program never called the model", "Make it use the URL in its environment variables"
    ),
    "no_compiler": FailureKind(
        "the sandbox has no compiler for the program", "Install the compiler that the cause names"
    ),
    "no_judge": FailureKind(
        "the answer needs a judge and none is set",
        "Set one: `--set resources.judge=SPEC`",
        stops_run=True,
        cause_says_remedy=True,
    ),
    "no_match": FailureKind("no row belongs to a stored rollout", "Pass the rows that the rollout was made from"),
    "no_program": FailureKind("the agent's program cannot be started", "Check `agent.command`"),
    "no_recording": FailureKind("the recorded run has no such answer", "Replay the same rows, repeats and seed"),
    "no_replay": FailureKind("an agent program's rollout cannot be played again", "Keep the verdict that it has"),
    "no_reward": FailureKind(
        "the environment gave no reward", "Look at the environment: it must reward what it accepts"
    ),
    "no_rule": FailureKind("no rule of the script fits the request", "Add a rule, or one without `when`"),
    "no_user": FailureKind("the model that plays the user is missing or says nothing", "Set `agent.user`"),
    "not_finite": FailureKind(
        "the model's logits are NaN or infinite", "Look at the weights: a training step may have broken them"
    ),
    "not_installed": FailureKind(
        "code needs a package that is missing",
        "Install it, or correct the import",
        stops_run=True,
        cause_says_remedy=True,
    ),
    "not_played": FailureKind("the model never answered", "Look at what the model sent"),
    "out_of_memory": FailureKind("the model's memory is full", "Lower `max_batch` or `max_output_tokens`"),
    "out_of_turn": FailureKind("the game is over or has not begun", "Let the agent stop when the game is over"),
    "refused": FailureKind(
        "nothing listens at the address", "Start the server, or correct its URL", retried="dropped", stops_run=True
    ),
    "sandbox": FailureKind(
        "the sandbox failed, and no program is to blame", "Run `ludus doctor`; `--resume` plays it again"
    ),
    "session_lost": FailureKind("the session is over", "Open a new session"),
    "stale": FailureKind(
        "the policy has moved on too far", "Nothing: `--max-staleness` ended it on purpose", ends_early=True
    ),
    "timeout": FailureKind("a step took longer than its limit", "Raise the limit: `--set limits.STAGE=SECONDS`"),
    "too_large": FailureKind("a reply is larger than allowed", "Raise `model.max_reply_bytes`, or mend the server"),
    "undecided": FailureKind("two expressions cannot be compared in time", "Set a judge, or leave the row out"),
    "unknown_token": FailureKind(
        "the tokenizer has tokens that the model does not know", "Use the tokenizer that belongs to the model"
    ),
    "unsupported": FailureKind(
        "the model or the agent cannot do this", "Use another model, or leave the feature out of the row"
    ),
    "wrong_thread": FailureKind(
        "the scorer works on the main thread only", "Collect in this process, without `--workers`"
    ),
}


def kind_of(kind: str) -> FailureKind:
    """The entry of a kind; for a kind that is not in the table one without texts."""
    return FAILURE_KINDS.get(kind, _OTHER)

"""The names of failures. A server's own names have the form `server:kind`."""

from __future__ import annotations

import functools
import logging
import re
from typing import Literal, TypeVar

#: The part of an episode that failed.
FailureStage = Literal["admission", "seed", "agent", "verification", "cleanup"]

TRANSPORT_UNREACHABLE = "transport_unreachable"
TRANSPORT_PEER_DROP = "transport_peer_drop"
TRANSPORT_TIMEOUT = "transport_timeout"
TRANSPORT_LOCAL_RESOURCE = "transport_local_resource"
AGENT_RUN_ERROR = "agent_run_error"
AGENT_REQUEST_FAILED = "agent_request_failed"
AGENT_TIMEOUT = "agent_timeout"
AGENT_COMMAND_NOT_ALLOWED = "agent_command_not_allowed"
JUDGE_FAILED = "judge_failed"
JUDGE_UNPARSEABLE = "judge_unparseable"
VERIFIER_ERROR = "verifier_error"
PROVIDER_UNAVAILABLE = "provider_unavailable"
PROVIDER_QUOTA_EXHAUSTED = "provider_quota_exhausted"
PROVIDER_OOM_KILLED = "provider_oom_killed"
SESSION_LOST = "session_lost"
SESSION_EXPIRED = "session_expired"
SESSION_RELEASE_FAILED = "session_release_failed"
CANCELLED = "cancelled"
KILL_SHAPED = "kill_shaped"
SHUTDOWN = "shutdown"
PERSISTENCE_FAILED = "persistence_failed"
COHORT_INCOMPLETE = "cohort_incomplete"

FAILURE_KINDS = frozenset(
    {
        TRANSPORT_UNREACHABLE,
        TRANSPORT_PEER_DROP,
        TRANSPORT_TIMEOUT,
        TRANSPORT_LOCAL_RESOURCE,
        AGENT_RUN_ERROR,
        AGENT_REQUEST_FAILED,
        AGENT_TIMEOUT,
        AGENT_COMMAND_NOT_ALLOWED,
        JUDGE_FAILED,
        JUDGE_UNPARSEABLE,
        VERIFIER_ERROR,
        PROVIDER_UNAVAILABLE,
        PROVIDER_QUOTA_EXHAUSTED,
        PROVIDER_OOM_KILLED,
        SESSION_LOST,
        SESSION_EXPIRED,
        SESSION_RELEASE_FAILED,
        CANCELLED,
        KILL_SHAPED,
        SHUTDOWN,
        PERSISTENCE_FAILED,
        COHORT_INCOMPLETE,
    }
)

_log = logging.getLogger(__name__)
_NAMESPACED = re.compile(r"[a-z][a-z0-9_]*:[a-z][a-z0-9_]*")
_Name = TypeVar("_Name", str, str | None)


def is_registered(name: str) -> bool:
    """Whether the name is one of `FAILURE_KINDS`."""
    return name in FAILURE_KINDS


def is_namespaced(name: str) -> bool:
    """Whether the name has the form `server:kind`."""
    return _NAMESPACED.fullmatch(name) is not None


def validate_failure_kind(name: _Name) -> _Name:
    """The name itself. An unknown one is logged once."""
    if name is not None and not is_registered(name) and not is_namespaced(name):
        _warn(name)
    return name


@functools.lru_cache(maxsize=1024)
def _warn(name: str) -> None:
    _log.warning("unknown failure kind %r: use a name of nemo_gym.failure_kinds or server:kind", name)

"""The addresses of servers, and the rollouts in them."""

from __future__ import annotations

import os
from typing import Any

from ludus_nemo_gym.names import ROLLOUTS_IN_PATHS

from nemo_gym._responses import field_of
from nemo_gym.config_types import ROLLOUT_PATH_PREFIX, TOKEN_CAPTURE_PATH_SEGMENT
from nemo_gym.rollout_correlation import current_rollout_id


def base_url_of(block: Any) -> str:
    """The address in the settings of a server. A server of Ludus gets the id of the current rollout in its address:
    authors pass addresses on to programs, whose requests would name no rollout.
    """
    rollout_id = current_rollout_id() if field_of(block, ROLLOUTS_IN_PATHS) is True else None
    return f"http://{field_of(block, 'host')}:{field_of(block, 'port')}{rollout_path_prefix(rollout_id)}"


def rollout_path_prefix(rollout_id: str | None, *, token_capture: bool = False) -> str:
    """What stands in front of a path so that the server knows which rollout a request belongs to."""
    if not rollout_id:
        return ""
    capture = f"/{TOKEN_CAPTURE_PATH_SEGMENT}" if token_capture else ""
    return f"/{ROLLOUT_PATH_PREFIX}/{rollout_id}{capture}"


def redirected_base_url(server_name: str) -> str | None:
    """The address to which the environment redirects the calls of a model server."""
    url = os.environ.get("NEMO_GYM_MODEL_SERVER_BASE_URL")
    is_redirected = url and os.environ.get("NEMO_GYM_MODEL_SERVER_NAME") == server_name
    return url.rstrip("/").removesuffix("/v1") if url and is_redirected else None

"""The names of NeMo Gym that trainers, servers and agents import, implemented by Ludus. The README lists them.

Importing the package imports none of its modules: names are looked up when they are first used.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

#: The folder of the package, and the root under which servers lie: a checkout's, or the current folder.
ROOT_DIR = Path(__file__).parent
PARENT_DIR = Path(os.environ.get("NEMO_GYM_EXTRA_ROOTS", "").split(os.pathsep)[0] or Path.cwd()).resolve()
WORKING_DIR = PARENT_DIR
CACHE_DIR = WORKING_DIR / "cache"
RESULTS_DIR = WORKING_DIR / "results"

_MODULES = {
    "base_resources_server": (
        "BaseMultiRewardVerifyResponse BaseResourcesServerConfig BaseRunRequest BaseSeedSessionRequest "
        "BaseSeedSessionResponse BaseVerifyRequest BaseVerifyResponse ReverifyMode SimpleResourcesServer"
    ),
    "base_responses_api_agent": "BaseResponsesAPIAgentConfig SimpleResponsesAPIAgent",
    "config_types": (
        "AggregateMetrics AggregateMetricsRequest BaseRunServerInstanceConfig BaseServerConfig Domain ModelServerRef"
    ),
    "openai_utils": (
        "NeMoGymAsyncOpenAI NeMoGymChatCompletion NeMoGymChatCompletionCreateParamsNonStreaming NeMoGymResponse "
        "NeMoGymResponseCreateParamsNonStreaming"
    ),
    "server_utils": "SESSION_ID_KEY ServerClient get_response_json raise_for_status",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
_PATHS = {"CACHE_DIR", "PARENT_DIR", "RESULTS_DIR", "ROOT_DIR", "WORKING_DIR"}

__all__ = sorted([*_MODULE_OF, *_PATHS])


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)

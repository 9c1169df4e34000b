"""The names of NeMo Gym that trainers, servers and agents import, implemented by Ludus. The README lists them.

Importing the package imports none of its modules: names are looked up when they are first used. If servers lie under
`PARENT_DIR`, the import also makes them importable and gives Hugging Face a cache there, as authors expect.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ludus_nemo_gym.checkouts import checkout_around, first_checkout


def _find_checkout() -> Path | None:
    """The folder under which servers lie: the first extra root, else the nearest one above the working directory, else
    the first one on the import path.
    """
    if extra := _extra_roots():
        return extra[0]
    return checkout_around(Path.cwd()) or first_checkout(Path(place).absolute() for place in sys.path if place)


def _extra_roots() -> list[Path]:
    places = os.environ.get("NEMO_GYM_EXTRA_ROOTS", "").split(os.pathsep)
    return [Path(place.strip()).expanduser().resolve() for place in places if place.strip()]


_CHECKOUT = _find_checkout()

#: The folder of the package, and the root under which servers lie: a checkout's, or the working directory.
ROOT_DIR = Path(__file__).parent
PARENT_DIR = _CHECKOUT or Path.cwd()
WORKING_DIR = PARENT_DIR if (PARENT_DIR / "pyproject.toml").is_file() else Path.cwd()
CACHE_DIR = WORKING_DIR / "cache"
RESULTS_DIR = WORKING_DIR / "results"

__package_name__ = __name__

_MODULES = {
    "base_resources_server": (
        "BaseMultiRewardVerifyResponse BaseResourcesServerConfig BaseRunRequest BaseSeedSessionRequest "
        "BaseSeedSessionResponse BaseVerifyRequest BaseVerifyResponse ReverifyMode SimpleResourcesServer"
    ),
    "base_responses_api_agent": "BaseResponsesAPIAgentConfig SimpleResponsesAPIAgent",
    "base_responses_api_model": "BaseResponsesAPIModelConfig SimpleResponsesAPIModel",
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
    if name == "__version__":
        from importlib.metadata import version

        return version("ludus-nemo-gym")
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def component_search_roots(*, sys_path: Sequence[str] | None = None) -> list[Path]:
    """The folders that relative paths are searched in: NEMO_GYM_EXTRA_ROOTS, the working directory, `PARENT_DIR`.

    `sys_path` is accepted for callers that pass the import path, and changes nothing.
    """
    return list(dict.fromkeys([*_extra_roots(), Path.cwd(), PARENT_DIR]))


def _resolve_under_cwd_or_install(rel_path: str | Path, *, validator: Callable[[Path], bool] | None = None) -> Path:
    """An absolute path as it is; else the first one under a root that exists (or passes `validator`); else the first
    root's.
    """
    path = Path(rel_path).expanduser()
    if path.is_absolute():
        return path
    places = [root / path for root in component_search_roots()]
    return next((place for place in places if (validator or Path.exists)(place)), places[0])


def _prepare_process() -> None:
    """Put the roots on the import path, the extra ones first, and set the variables of Hugging Face's libraries."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if _CHECKOUT is None:
        return
    cache = str(CACHE_DIR / "huggingface")
    for variable in ("HF_HOME", "HF_DATASETS_CACHE"):
        os.environ.setdefault(variable, cache)
    extra = list(map(str, _extra_roots()))
    sys.path[:] = [*extra, *(place for place in sys.path if place not in extra)]
    if str(_CHECKOUT) not in sys.path:
        sys.path.append(str(_CHECKOUT))


_prepare_process()

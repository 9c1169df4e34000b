"""Names of inspect-ai that are not part of its public API, all in one place. Checked with 0.3.285."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inspect_ai._eval.loader import load_tasks as load_tasks
from inspect_ai._util.registry import RegistryInfo, registry_add, registry_find, registry_info, registry_tag
from inspect_ai._util.registry import registry_unqualified_name as unqualified_name
from inspect_ai.log._samples import active_samples as active_samples
from inspect_ai.log._samples import sample_active as sample_active
from inspect_ai.model import GenerateConfig, Model, ModelAPI
from inspect_ai.model import _model as model_module
from inspect_ai.model._call_tools import parse_tool_call as parse_tool_call
from inspect_ai.util._display import init_display_type as init_display_type

__all__ = ["active_samples", "init_display_type", "load_tasks", "parse_tool_call", "sample_active"]


def tasks_named() -> list[str]:
    """The tasks of all installed packages, as `PACKAGE/TASK`."""
    found = registry_find(lambda info: info.type == "task")
    return [registry_info(task).name for task in found]


def first_scorer(task: Any) -> str:
    """The name of the first scorer of a task; empty if it has none."""
    scorers = task.scorer or []
    return str(unqualified_name(scorers[0])) if scorers else ""


def put_model(model: Model) -> None:
    """Make a model the one that `get_model()` returns while a task is being made."""
    model_module.init_active_model(model, GenerateConfig())


def answer_roles(make: Callable[[str], Model]) -> None:
    """Let `make` give the model of every role, whether or not a task or a user has named one for it."""

    class Roles(dict[str, Any]):
        def get(self, role: str, default: Any = None) -> Any:
            return make(role)

        __missing__ = get

    class Always:
        def get(self) -> Roles:
            return Roles()

        def set(self, roles: Any) -> None:
            """Ignore what a task or an eval would set."""

    model_module._model_roles = Always()  # type: ignore[assignment]


def replace_providers(make: Callable[..., ModelAPI], kept: set[str]) -> None:
    """Let `make` create the models of every provider (`openai/NAME`), so that a task's own calls leave no process."""
    for provider in registry_find(lambda info: info.type == "modelapi"):
        info = registry_info(provider)
        name = unqualified_name(info)
        if name not in kept:
            registry_add(_provider(make, name, info), info)


def _provider(make: Callable[..., ModelAPI], provider: str, info: RegistryInfo) -> Callable[..., ModelAPI]:
    def made(model_name: str, **arguments: Any) -> ModelAPI:
        model = make(f"{provider}/{model_name}")
        registry_tag(made, model, info, model_name=model_name)
        return model

    return made


def replace_sandboxes(kind: type, names: list[str]) -> None:
    """Let a class of ours stand for all sandboxes, those of Inspect and those of packages that are not installed."""
    found = registry_find(lambda info: info.type == "sandboxenv")
    taken = {registry_info(one).name for one in found} | {f"inspect_ai/{name}" for name in names}
    for name in taken:
        registry_add(type(kind.__name__, (kind,), {}), RegistryInfo(type="sandboxenv", name=name))

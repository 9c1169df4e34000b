"""Models that ship with Ludus, chosen by a spec.

| spec | model |
| --- | --- |
| `local` | the embedded model |
| `scripted:FILE`, `scripted:module:function` | fixed answers |
| `openai:NAME` | OpenAI's endpoint, or the one in OPENAI_BASE_URL |
| `URL#NAME` | any endpoint that speaks Responses or Chat Completions |
"""

from __future__ import annotations

from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus.model import Model
from ludus.settings import checked

KINDS = ("local", "scripted", "openai")


def open_model(spec: str | Model, settings: dict[str, Any] | None = None) -> Model:
    """The model that a spec names, with settings checked against its class. Modules are imported when asked for.

    open_model("http://127.0.0.1:8000/v1#my-model", {"timeout": 30})
    """
    if isinstance(spec, Model):
        return spec
    given = dict(settings or {})
    if spec.startswith(("http://", "https://")):
        from ludus.models.openai import OpenAIModel

        url, _, name = spec.partition("#")
        if not name:
            raise UserError(f"model {spec} names no model", f"Write it as {url}#NAME")
        return OpenAIModel(checked(OpenAIModel.Config, {"base_url": url, "model": name, **given}, "model"))
    kind, _, rest = spec.partition(":")
    if kind == "local":
        from ludus.models.local import LocalModel

        return LocalModel(checked(LocalModel.Config, {**({"path": rest} if rest else {}), **given}, "model"))
    if kind == "scripted":
        from ludus.models.scripted import ScriptedModel

        return ScriptedModel.load(rest, checked(ScriptedModel.Config, given, "model"))
    if kind == "openai":
        from ludus.models.openai import OpenAIModel

        if not rest:
            raise UserError("openai names no model", "Write it as openai:NAME, for example openai:gpt-4.1-mini")
        return OpenAIModel(checked(OpenAIModel.Config, {"model": rest, **given}, "model"))
    raise UserError(f"unknown model {spec}", f"{did_you_mean(kind, KINDS)} An endpoint is written URL#NAME")

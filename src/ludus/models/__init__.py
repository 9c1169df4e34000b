"""Models that ship with Ludus, chosen by a spec.

| spec | model |
| --- | --- |
| `local`, `local:FILE` | the embedded model, or your own GGUF file |
| `openai:NAME` | OpenAI's endpoint, or the one in OPENAI_BASE_URL |
| `URL#NAME` | any endpoint that speaks Responses or Chat Completions (OpenRouter, llama.cpp, ...) |
| `vllm:URL#NAME`, `sglang:URL#NAME` | a server that can return token ids |
| `azure:DEPLOYMENT` | Azure OpenAI |
| `transformers:PATH_OR_NAME` | a Hugging Face model in this process |
| `remote:URL` | a model server of `ludus serve` or of NeMo Gym |
| `replay:FILE` | the answers of a recorded collection |
| `scripted:FILE`, `scripted:module:function` | fixed answers |
| `FILE.yaml` | a mapping with `type` (one of the words above) and settings, such as several `base_url`s |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus.model import Model
from ludus.runtime.installed import packaged
from ludus.runtime.settings import checked, read_yaml
from ludus.runtime.urls import shown_url

Settings = dict[str, Any]


def open_model(spec: str | Settings | Model, settings: Settings | None = None) -> Model:
    """Open the model that a spec names and check its settings. The module of a model is imported on first use.

    open_model("http://127.0.0.1:8000/v1#my-model", {"temperature": 0.2})
    open_model({"type": "vllm", "base_url": ["http://a/v1", "http://b/v1"], "model": "my-model"})
    """
    if isinstance(spec, Model):
        if settings:
            problem = f"model.{min(settings)} cannot be set on a model that is passed as an object"
            raise UserError(problem, f"Set {min(settings)} where you create the model")
        return spec
    fields = dict(settings or {})
    if isinstance(spec, dict):
        return _from_block(spec, fields, "the model")
    if not isinstance(spec, str):
        hint = f"Pass an object: {spec.__name__}(...)" if isinstance(spec, type) else "Example: model='openai:NAME'"
        raise UserError(f"a model is a text, a mapping or a Model object, not {spec!r:.80}", hint)
    if spec.endswith((".yaml", ".yml")) and ":" not in spec:
        return _from_block(_read_block(Path(spec)), fields, spec)
    if spec.startswith(("http://", "https://")):
        return _openai(spec, fields)
    kind, _, rest = spec.partition(":")
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS)
        if not hint.startswith("Did you mean"):
            hint = f"A model of a provider is written openai:{shown_url(spec)}." if kind == spec else hint
        hint = f"{hint} An endpoint is written URL#NAME"
        raise UserError(f"unknown model {shown_url(spec)}", hint)
    return KINDS[kind](rest, fields)


def _configured(kind: str, fields: Settings) -> Model:
    """A model of the class `module:Class` in this package, with checked settings."""
    module, _, name = kind.partition(":")
    model_class: Any = getattr(import_module(f"ludus.models.{module}"), name)
    model: Model = model_class(config=checked(model_class.Config, fields, "model"))
    return model


def _local(rest: str, settings: Settings) -> Model:
    return _configured("local:LocalModel", {**({"path": rest} if rest else {}), **settings})


def _scripted(rest: str, settings: Settings) -> Model:
    from ludus.models.scripted import ScriptedModel

    return ScriptedModel.load(rest or str(settings.pop("script", "")), checked(ScriptedModel.Config, settings, "model"))


def _replay(rest: str, settings: Settings) -> Model:
    from ludus.models.replay import ReplayModel

    path = rest or str(settings.pop("path", ""))
    checked(ReplayModel.Config, settings, "model")
    if not path:
        raise UserError("replay names no recording", "Write it as replay:FOLDER or replay:FILE")
    return ReplayModel(Path(path))


def _openai(rest: str, settings: Settings) -> Model:
    fields = {**_endpoint(rest), **settings}
    if not fields.get("model"):
        raise UserError("openai names no model", "Write it as openai:NAME, for example openai:gpt-4.1-mini")
    return _configured("openai:OpenAIModel", fields)


def _vllm(rest: str, settings: Settings, kind: str = "vllm") -> Model:
    fields = {**_endpoint(rest, f"{kind}:"), **settings}
    if "base_url" not in fields:
        raise UserError(
            f"{kind} names no server", f"Write it as {kind}:URL#NAME, for example {kind}:http://127.0.0.1:8000/v1#m"
        )
    return _configured("sglang:SglangModel" if kind == "sglang" else "vllm:VllmModel", fields)


def _remote(rest: str, settings: Settings) -> Model:
    url = rest.rstrip("/") or str(settings.pop("base_url", ""))
    if not url:
        raise UserError("remote names no server", "Write it as remote:URL, for example remote:http://127.0.0.1:8003")
    return _configured("remote:RemoteModel", {"base_url": url if url.endswith("/v1") else f"{url}/v1", **settings})


def _transformers(rest: str, settings: Settings) -> Model:
    model_class = packaged("ludus.models", "transformers", "the transformers model", "transformers")
    fields = {**({"path": rest} if rest else {}), **settings}
    model: Model = model_class(config=checked(model_class.Config, fields, "model"))
    return model


def _azure(rest: str, settings: Settings) -> Model:
    if not rest and "model" not in settings:
        raise UserError("azure names no deployment", "Write it as azure:DEPLOYMENT")
    return _configured("azure:AzureModel", {**({"model": rest} if rest else {}), **settings})


KINDS: dict[str, Callable[[str, Settings], Model]] = {
    "local": _local,
    "openai": _openai,
    "vllm": _vllm,
    "sglang": partial(_vllm, kind="sglang"),
    "azure": _azure,
    "transformers": _transformers,
    "remote": _remote,
    "replay": _replay,
    "scripted": _scripted,
}


def _endpoint(rest: str, kind: str = "") -> Settings:
    """Parse `NAME`, `URL#NAME` or an empty text, which leaves model and URL to the settings."""
    if not rest.startswith(("http://", "https://")):
        return {"model": rest} if rest else {}
    url, _, name = rest.partition("#")
    if not name:
        raise UserError(f"model {shown_url(rest)} names no model", f"Write it as {kind}{shown_url(url)}#NAME")
    return {"base_url": url, "model": name}


def _from_block(block: Settings, settings: Settings, where: str) -> Model:
    fields = {**block, **settings}
    kind = str(fields.pop("type", ""))
    if kind not in KINDS:
        raise UserError(f"{where}: unknown type {kind or '(none)'}", did_you_mean(kind, KINDS))
    return KINDS[kind]("", fields)


def _read_block(path: Path) -> Settings:
    block = read_yaml(path, "model")
    if not isinstance(block, dict):
        raise UserError(f"model {path} must hold a mapping with a type", "Start it with a line such as type: openai")
    return block

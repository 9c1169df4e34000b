"""The flags of the `gym` command. Each stands for one of Hydra's overrides, which may also be written as they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ludus.errors import UserError, did_you_mean
from ludus_nemo_gym.config import CONFIG_PATHS
from ludus_nemo_gym.overrides import parse_overrides
from ludus_nemo_gym.search_paths import ROOTS

Arguments = list[str]
_NAME = re.compile(r"(?P<name>\w[\w.-]*)(/(?P<flavor>\w[\w.-]*))?")
_IGNORED = ("-v", "--verbose")


@dataclass(frozen=True)
class Flag:
    """A flag and what it stands for. The value of a `text` is taken as typed; any other value is read as Hydra's.

    kinds: `text`, `value`, `switch` (takes no value), `config` (`key` is the pattern of a configuration file's path),
    `entrypoint` (the name of an environment), `search` (a folder to search in), `json` (passed on).
    """

    key: str
    kind: str = "text"
    help: str = ""


Flags = dict[str, Flag]

#: Short names of flags.
SHORT = {"-m": ("--model",), "-a": ("--agent",), "-i": ("--input", "--input-glob"), "-o": ("--output",)}

SEARCH: Flags = {"--search-dir": Flag("", "search", "also search for files in this folder")}
CONFIG: Flags = {"--config": Flag("{name}", "config", "a configuration file; may be repeated")}
SERVERS: Flags = {
    "--resources-server": Flag(
        "resources_servers/{name}/configs/{flavor}.yaml", "config", "an environment: NAME, or NAME/CONFIG"
    ),
    "--model-type": Flag(
        "responses_api_models/{name}/configs/{flavor}.yaml", "config", "a kind of model, such as openai_model"
    ),
}
COMPONENTS: Flags = {
    **CONFIG,
    "--benchmark": Flag("benchmarks/{name}/config.yaml", "config", "the configuration of a benchmark"),
    "--environment": Flag("environments/{name}/config.yaml", "config", "the configuration of an environment"),
    **SERVERS,
    **SEARCH,
}
MODEL: Flags = {
    "--model": Flag("policy_model_name", help="the model's name"),
    "--model-url": Flag("policy_base_url", help="the URL of the model's API"),
    "--model-api-key": Flag("policy_api_key", help="the key, visible to others here: set POLICY_API_KEY instead"),
}
COLLECT: Flags = {
    "--agent": Flag("agent_name", help="the agent for rows that name none"),
    "--input": Flag("input_jsonl_fpath", help="the file of rows"),
    "--output": Flag("output_jsonl_fpath", help="the file for the rollouts"),
    "--limit": Flag("limit", "value", "use only the first rows"),
    "--num-repeats": Flag("num_repeats", "value", "rollouts of each row, or '{AGENT: N}'"),
    "--concurrency": Flag("num_samples_in_parallel", "value", "rollouts at once"),
    "--resume": Flag("resume_from_cache", "switch", "skip finished rollouts"),
    "--split": Flag("split", help="the type of datasets to use without --input"),
    "--prompt-config": Flag("prompt_config", help="a template for the prompts of rows without one"),
    "--temperature": Flag("responses_create_params.temperature", "value", "sampling"),
    "--top-p": Flag("responses_create_params.top_p", "value", "sampling"),
    "--max-output-tokens": Flag("responses_create_params.max_output_tokens", "value", "sampling"),
    "--disable-aggregation": Flag("disable_aggregation", "switch", "write no metrics"),
}


@dataclass
class Translated:
    """The overrides that arguments stand for, and the words among them that are no flags and no overrides."""

    overrides: Arguments = field(default_factory=list)
    words: Arguments = field(default_factory=list)


def translate(arguments: Iterable[str], flags: Flags) -> Translated:
    """Turn flags into overrides. `--search-dir` changes this process's environment."""
    done, configs, folders = Translated(), list[str](), list[str]()
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        name, equals, value = argument.partition("=")
        name = next((long for long in SHORT.get(name, ()) if long in flags), name)
        if argument in _IGNORED:
            continue
        if not name.startswith("-"):
            (done.overrides if equals or argument.startswith("~") else done.words).append(argument)
            continue
        if name not in flags:
            raise UserError(f"there is no flag {name[:60]}", did_you_mean(name, flags))
        flag = flags[name]
        if flag.kind in ("switch", "json"):
            if equals:
                raise UserError(f"{name} takes no value", f"Write {name}")
            done.overrides.append(f"+{flag.key}=true" if flag.kind == "switch" else name)
            continue
        if not equals:
            if not waiting:
                raise UserError(f"{name} needs a value", f"Write {name} VALUE")
            value = waiting.pop(0)
        if flag.kind == "config":
            configs.append(_path(name, flag.key, value))
        elif flag.kind == "entrypoint":
            path = _path(name, "resources_servers/{name}", value)
            done.overrides.append(f"++{flag.key}={quoted(path)}")
        elif flag.kind == "search":
            folders.append(value)
        else:
            done.overrides.append(f"++{flag.key}={value if flag.kind == 'value' else quoted(value)}")
    if configs:
        done.overrides = _with_configs(done.overrides, configs)
    if folders:
        known = os.environ.get(ROOTS)
        os.environ[ROOTS] = os.pathsep.join([*folders, *([known] if known else [])])
    return done


def quoted(text: str) -> str:
    """A text as Hydra reads it back: in quotes, with a backslash before each quote and each backslash before it."""
    escaped = re.sub(r"(\\*)('|\Z)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), text)
    return f"'{escaped}'"


def _path(flag: str, pattern: str, value: str) -> str:
    if pattern == "{name}":
        return value
    match = _NAME.fullmatch(value)
    if match is None:
        raise UserError(f"{flag} {value[:60]} is not a name", f"Example: {flag} mcqa")
    return pattern.format(name=match["name"], flavor=match["flavor"] or match["name"])


def _with_configs(overrides: Arguments, configs: list[str]) -> Arguments:
    """The overrides with the files of flags after those of `+config_paths=[...]`."""
    path_overrides = [override for override in overrides if override.lstrip("+").startswith(f"{CONFIG_PATHS}=")]
    named = parse_overrides(path_overrides).get(CONFIG_PATHS) or []
    named = [named] if isinstance(named, str) else named
    listed = ",".join(quoted(str(path)) for path in [*named, *configs])
    return [*(override for override in overrides if override not in path_overrides), f"++{CONFIG_PATHS}=[{listed}]"]


def in_flags(text: str, flags: Flags) -> str:
    """A message about overrides, with flags in their place: `+limit=N` is `--limit N`."""
    for name, flag in flags.items():
        pattern = rf"(?<![\w+'])\+{{1,2}}{re.escape(flag.key)}=(?P<value>[\w*_/.-]+)"
        text = re.sub(pattern, name if flag.kind == "switch" else rf"{name} \g<value>", text) if flag.key else text
    return text

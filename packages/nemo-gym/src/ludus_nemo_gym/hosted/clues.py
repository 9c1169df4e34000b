"""Guesses about a server from its code and its settings: does it use a network, a container, a GPU?"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ludus.adapter import Need
from ludus.errors import install_command
from ludus.sandbox.choice import hosted_problems, survey
from ludus_nemo_gym.hosted.imports import ServerCode
from ludus_nemo_gym.hosted.requirements import Requirements
from ludus_nemo_gym.masking import is_secret_key
from ludus_nemo_gym.trees import MISSING, Tree

#: Modules that do little else than call the network.
_NETWORK_MODULES = (
    "requests httpx urllib3 urllib.request huggingface_hub tavily serpapi exa_py wikipedia boto3 google.cloud "
    "websockets websocket playwright selenium"
).split()
#: Names that mean a call of the network. aiohttp alone says nothing: servers catch its exceptions.
_NETWORK_NAMES = (
    "ClientSession OpenAI AsyncOpenAI Anthropic AsyncAnthropic urlopen urlretrieve hf_hub_download snapshot_download "
    "load_dataset from_pretrained"
).split()

_CONTAINER_MODULES = "docker podman spython testcontainers kubernetes swerex minisweagent".split()
_CONTAINER_PROGRAMS = ("docker", "podman", "apptainer", "singularity", "enroot")

#: Modules that do not work without a GPU, and modules that are slow without one.
_GPU_MODULES = "vllm sglang cupy flash_attn bitsandbytes tensorrt_llm deepspeed pynvml numba.cuda".split()
_MAYBE_GPU_MODULES = "torch jax tensorflow sentence_transformers".split()


def network(code: ServerCode, block: Tree) -> Iterator[Need]:
    """Whether the code seems to call the network, and whether it has its keys."""
    clues = [f"{place} imports {module}" for module in _NETWORK_MODULES if (place := code.where(module))]
    clues += [f"{code.names[name]} uses {name}" for name in _NETWORK_NAMES if name in code.names]
    keys = dict(_keys(block))
    clues += [f"{key} {'is set' if value else 'has no value'}" for key, value in keys.items()]
    if clues:
        missing = any(value == "" for value in keys.values())
        shown = ", ".join(clues[:4]) + (", ..." if len(clues) > 4 else "")
        yield Need("network", False if missing else None, f"{shown} (a guess from its files; nothing was called)")


def _keys(block: Any, path: str = "") -> Iterator[tuple[str, bool | str]]:
    """The secrets in a server's settings: True if it has a value, an empty text if it must have one, else False."""
    for key, value in block.items() if isinstance(block, dict) else ():
        here = f"{path}.{key}".lstrip(".")
        if isinstance(value, dict):
            yield from _keys(value, here)
        elif is_secret_key(str(key)):
            required = value == MISSING or (isinstance(value, str) and value.startswith("${"))
            yield here, "" if required else bool(value)


def container(code: ServerCode, block: Tree, tree: Tree, instead: str) -> Iterator[Need]:
    """The containers or sandboxes that the code asks for. `instead` is the command that uses Ludus's sandboxes."""
    if place := code.where("nemo_gym.sandbox"):
        yield _sandbox(f"{place} imports nemo_gym.sandbox", _provider(block, tree), instead)
    clues = {module: f"{place} imports {module}" for module in _CONTAINER_MODULES if (place := code.where(module))}
    clues |= {name: f"{code.programs[name]} starts {name}" for name in _CONTAINER_PROGRAMS if name in code.programs}
    for name, clue in clues.items():
        program = name if name in _CONTAINER_PROGRAMS else "docker"
        met = shutil.which(program) is not None
        yield Need("container", met, clue if met else f"{clue}, and {program} is not installed")


def _sandbox(clue: str, provider: str, instead: str) -> Need:
    """Whether the provider of a server's sandboxes works here."""
    problem: str | None = ""
    commands: tuple[str, ...] = ()
    if provider in ("docker", "apptainer"):
        problem = None if shutil.which(provider) else f"{provider} is not installed"
    elif provider == "local":
        problem = None
    elif provider == "ludus":
        problems = [status.problem for status in survey() if status.isolates]
        problem = None if None in problems else f"no sandbox of Ludus works: {problems[0]}"
        commands = () if problem is None else ("ludus doctor",)
    elif provider in ("daytona", "e2b"):
        problems_of = hosted_problems()
        problem = problems_of.get(provider, "ludus-sandboxes is not installed")
        commands = () if provider in problems_of else (install_command(package="sandboxes"),)
    elif provider:
        problem = "ludus-nemo-gym does not have it"
    if problem == "":
        return Need("container", None, f"{clue}, and its settings do not say which provider")
    if problem is None:
        return Need("container", True, f"{clue}, with the provider {provider}")
    if provider != "ludus" and any(status.problem is None for status in survey() if status.isolates):
        commands = (*commands, instead)
    return Need("container", False, f"{clue}, with the provider {provider}: {problem}", commands)


def _provider(block: Tree, tree: Tree) -> str:
    """The provider that `sandbox_provider` means: a block of the configuration, or its name."""
    from nemo_gym.sandbox.config import provider_of

    reference = block.get("sandbox_provider")
    named = tree.get(reference) if isinstance(reference, str) else reference
    try:
        return provider_of(named)[0] if isinstance(named, dict) else ""
    except ValueError:
        return ""


def gpu(code: ServerCode, requirements: Requirements) -> Iterator[Need]:
    """Whether the code seems to need a GPU."""
    sure = _gpu_clue(_GPU_MODULES, code, requirements)
    if not sure and "is_available" not in code.names:
        sure = next((f"{place} says {text}" for text, place in code.texts.items() if _is_device(text)), "")
    clue = sure or _gpu_clue(_MAYBE_GPU_MODULES, code, requirements)
    if not clue:
        return
    if _has_gpu():
        yield Need("GPU", True, clue)
    elif sure:
        yield Need("GPU", False, f"{clue}, and this machine has none (a guess from its files)")
    else:
        yield Need("GPU", None, f"{clue}: slower without a GPU, and this machine has none (a guess from its files)")


def _gpu_clue(modules: list[str], code: ServerCode, requirements: Requirements) -> str:
    for module in modules:
        if place := code.where(module):
            return f"{place} imports {module}"
        for package in requirements.wanted:
            if package.name == module.replace("_", "-"):
                return f"{package.where} wants {package}"
    return ""


def _is_device(text: str) -> bool:
    return text == "cuda" or text.startswith("cuda:")


def _has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*")) or shutil.which("nvidia-smi") is not None

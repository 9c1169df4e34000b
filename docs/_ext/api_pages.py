"""The reference of the Python names, read from the source: signatures, docstrings and the comments of attributes.

Nothing is imported, so that the page of an adapter does not need the trainer that it is written for.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from page_text import block, code, first_paragraph, paragraphs, table

_ROOT = Path(__file__).parents[2]
SOURCE = _ROOT / "src" / "ludus"

#: Where the import packages lie whose modules the pages show. Names without one of these before them are of `ludus`.
_PACKAGES = {
    name: _ROOT / "packages" / name.removeprefix("ludus_") / "src" / name
    for name in ("ludus_bench", "ludus_credit", "ludus_data", "ludus_qualify", "ludus_trainers", "ludus_transformers")
}


def _in(room: str, files: str) -> list[str]:
    return [f"{room}.{file}" for file in files.split()]


#: The pages: a title, what the names are for, and the modules whose public names are shown.
PAGES: dict[str, tuple[str, str, list[str]]] = {
    "ludus": ("ludus", "The names that most programs need. Write `import ludus`.", []),
    "words": (
        "The words",
        "What tasks, trajectories, tokens and verdicts are made of.",
        "task response tokens token_fields outcome tools prompt dataset folder record errors".split(),
    ),
    "models": (
        "ludus.models",
        "Models, and `open_model`, which turns a spec into one.",
        ["models", *_in("models", "scripted openai vllm sglang azure local replay remote"), "ludus_transformers.model"],
    ),
    "agents": (
        "ludus.agents",
        "What drives a rollout. `environment.yaml` names agents by type.",
        _in("agents", "simple single_turn gymnasium conversation command harness.agent user"),
    ),
    "graders": (
        "ludus.graders",
        "Functions that judge text, for verifiers.",
        _in("graders", "answers code_blocks formats judge math outputs patterns programs schemas repository"),
    ),
    "sandbox": ("ludus.sandbox", "Running code that nobody trusts.", _in("sandbox", "protocol resources choice")),
    "data": (
        "ludus.data and ludus_data",
        "Sources of rows, and the work of `ludus data` as functions: `pip install ludus-data`.",
        [
            "data.sources",
            *_in("ludus_data", "convert mapping validate prepare split dedupe overlap sample stats filters transfer"),
            "ludus_data.export",
        ],
    ),
    "train": (
        "ludus.train and ludus_transformers",
        "Groups of rollouts for trainers, and the adapters for TRL: `pip install 'ludus-transformers[train]'`.",
        [
            *_in("train", "contract group policy stored rows"),
            *_in("ludus_transformers", "trl trl_environment"),
            "data.advantages",
        ],
    ),
    "trainers": (
        "ludus_trainers",
        "Adapters for other trainers: `pip install ludus-trainers`.",
        _in("ludus_trainers", "player rows token_engine prompts verl verl_data skyrl areal slime tinker art openrlhf"),
    ),
    "trust": (
        "Checks and figures",
        "The work of `ludus qualify`, `verify`, `recall`, `compare`, `profile` and `credit` as functions.",
        _in("ludus_qualify", "run card recall")
        + _in("rescore", "rescoring")
        + _in("compare", "comparison")
        + _in("ludus_bench.profile", "profile difficulty")
        + _in("ludus_credit", "crediting"),
    ),
    "integrations": (
        "ludus.integrations",
        "Other people's environments as resources.",
        [
            "integrations.mcp",
            "environments.openenv.server",
            "environments.verifiers.session",
            *_in("remote", "resources agent"),
        ],
    ),
    "testing": ("ludus.testing", "Helpers for the tests of an environment.", ["testing"]),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Name:
    """A public name: where it is imported from, and the code that defines it."""

    module: str
    name: str
    node: Function | ast.ClassDef
    lines: tuple[str, ...]


def api_pages() -> dict[str, str]:
    """The whole Markdown of each page, by the page's name."""
    return {page: _page(page, *content) for page, content in PAGES.items()}


def api_index() -> str:
    """A table of the pages, and one of all names with the sentence that says what each is."""
    pages = table(
        ["page", "what is there"],
        ([f"[{title}](python/{page}.md)", what] for page, (title, what, _) in PAGES.items()),
    )
    rows = [
        [f"[{code(each.name)}](python/{page}.md#{each.name.lower()})", code(each.module), _summary(each)]
        for page in PAGES
        for each in names_of(page)
    ]
    return f"{pages}\n\n## All names\n\n{table(['name', 'from', 'what it is'], rows)}"


def names_of(page: str) -> list[Name]:
    """The public names on a page, in the order of their modules."""
    modules = PAGES[page][2]
    if modules:
        return [name for module in modules for name in _defined(module)]
    found = []
    for name, module in sorted(_lazy_names().items()):
        (defined,) = [each for each in _defined(module) if each.name == name]
        found.append(Name("ludus", name, defined.node, defined.lines))
    return found


def _page(page: str, title: str, what: str, modules: list[str]) -> str:
    parts = [f"# {title}", what]
    for each in names_of(page):
        parts += _section(each)
    return "\n\n".join(parts) + "\n"


def _section(name: Name) -> list[str]:
    parts = [f"## {name.name}"]
    before = f"from {name.module} import {name.name}\n\n"
    if isinstance(name.node, ast.ClassDef):
        return [*parts, *_class(name.node, name.lines, before)]
    return [*parts, block(before + _signature(name.node), "python"), paragraphs(ast.get_docstring(name.node))]


def _class(node: ast.ClassDef, lines: tuple[str, ...], before: str) -> list[str]:
    bases = [ast.unparse(base) for base in node.bases]
    shown = f"class {node.name}" + (f"({', '.join(bases)})" if bases else "")
    made = next((each for each in node.body if isinstance(each, Function) and each.name == "__init__"), None)
    if made is not None:
        call = _signature(made).replace("def __init__", node.name, 1).removesuffix(" -> None")
        shown += "\n\n" + re.sub(r"\((\s*)self,?\s*", r"(\1", call, count=1)
    parts = [block(before + shown, "python"), paragraphs(ast.get_docstring(node))]
    rows = _attributes(node, lines)
    if rows:
        parts.append(table(["attribute", "type", "default", "meaning"], rows))
    for member in node.body:
        if isinstance(member, Function) and _is_public(member):
            decorators = {ast.unparse(each).split("(")[0] for each in member.decorator_list}
            if "overload" in decorators or any(each.endswith(".setter") for each in decorators):
                continue
            attribute = bool(decorators & {"property", "cached_property", "functools.cached_property"})
            heading = f"### {node.name}.{member.name}"
            signature = _signature(member)
            if attribute and member.returns:
                signature = f"{member.name}: {ast.unparse(member.returns)}"
            parts += [heading, block(signature, "python"), paragraphs(ast.get_docstring(member))]
    return [part for part in parts if part]


def _attributes(node: ast.ClassDef, lines: tuple[str, ...]) -> list[list[str]]:
    rows = []
    for member in node.body:
        if not isinstance(member, ast.AnnAssign) or not isinstance(member.target, ast.Name):
            continue
        if member.target.id.startswith("_") or member.target.id == "model_config":
            continue
        default = code(_short(ast.unparse(member.value))) if member.value is not None else ""
        meaning = paragraphs(comment_of(member, lines))
        rows.append([code(member.target.id), code(_short(ast.unparse(member.annotation))), default, meaning])
    return rows


def comment_of(member: ast.AnnAssign, lines: tuple[str, ...]) -> str:
    """The `#:` comment above an attribute, or the comment behind it."""
    above: list[str] = []
    for line in reversed(lines[: member.lineno - 1]):
        if not line.strip().startswith("#:"):
            break
        above.insert(0, line.strip()[2:].strip())
    end = (member.end_lineno or member.lineno) - 1
    behind = lines[end].encode()[member.end_col_offset or 0 :].decode().partition("#")[2].strip()
    return " ".join(above) or ("" if behind.startswith(("type:", "noqa")) else behind)


def _signature(node: Function) -> str:
    """The signature of a function on one line, or with one parameter on each line where it is long."""
    prefix = "async def " if isinstance(node, ast.AsyncFunctionDef) else "def "
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    one_line = f"{prefix}{node.name}({ast.unparse(node.args)}){returns}"
    if len(one_line) <= 100:
        return one_line
    parts = _parameters(node.args)
    return f"{prefix}{node.name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def _parameters(given: ast.arguments) -> list[str]:
    """Each parameter as it is written."""
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    parts = [_parameter(each, default) for each, default in zip(plain, defaults, strict=True)]
    if given.posonlyargs:
        parts.insert(len(given.posonlyargs), "/")
    if given.vararg is not None:
        parts.append(f"*{_parameter(given.vararg, None)}")
    elif given.kwonlyargs:
        parts.append("*")
    parts += [_parameter(*each) for each in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return parts + ([f"**{_parameter(given.kwarg, None)}"] if given.kwarg is not None else [])


def _parameter(each: ast.arg, default: ast.expr | None) -> str:
    hint = f": {ast.unparse(each.annotation)}" if each.annotation is not None else ""
    equals = " = " if hint else "="
    return f"{each.arg}{hint}" + (f"{equals}{ast.unparse(default)}" if default is not None else "")


def _summary(name: Name) -> str:
    return first_paragraph(paragraphs(first_paragraph(ast.get_docstring(name.node) or "")))


def _is_public(node: Function | ast.ClassDef) -> bool:
    return not node.name.startswith("_")


@cache
def _defined(module: str) -> list[Name]:
    """The public classes and functions that a module defines, or those that its `__all__` imports from its folder."""
    room, *rest = module.split(".")
    full_name = module if room in _PACKAGES else f"ludus.{module}"
    path = _PACKAGES.get(room, SOURCE / room).joinpath(*rest)
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = file.read_text()
    lines = tuple(text.split("\n"))
    names, seen = [], set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef | Function) and _is_public(node):
            if any(ast.unparse(each).endswith("overload") for each in node.decorator_list) or node.name in seen:
                continue
            seen.add(node.name)
            names.append(Name(full_name, node.name, node, lines))
        if isinstance(node, ast.ImportFrom) and path.is_dir() and (node.module or "").startswith(f"{full_name}."):
            wanted = {alias.name for alias in node.names}
            members = [each for each in _defined((node.module or "").removeprefix("ludus.")) if each.name in wanted]
            names += [Name(full_name, member.name, member.node, member.lines) for member in members]
    return names


def _lazy_names() -> dict[str, str]:
    """The module of each name of `ludus`, which `ludus/__init__.py` lists."""
    for node in ast.parse((SOURCE / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_NAMES":
            modules: dict[str, tuple[str, ...]] = ast.literal_eval(node.value)
            return {name: module for module, names in modules.items() for name in names}
    raise LookupError("ludus/__init__.py has no _NAMES")


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."

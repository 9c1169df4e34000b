"""`ludus new`: create a small working environment to start from."""

from __future__ import annotations

import builtins
import importlib.util
import keyword
import re
import shlex
from pathlib import Path
from typing import Annotated

from ludus.cli.commands import Argument, Option

TEMPLATE = Path(__file__).parent / "template"
COOKBOOK = Path(__file__).parents[1] / "cookbook"


def new(
    name: Annotated[str, Argument(metavar="NAME", help="Lower case letters, digits and _, for example my_game.")],
    path: Annotated[Path, Option("--path", help="The parent folder.")] = Path(),
    like: Annotated[
        str | None, Option("--like", metavar="RECIPE", help=f"Copy a recipe of the cookbook: {', '.join(recipes())}.")
    ] = None,
) -> None:
    """Create an environment in a new folder.

    It is small, passes its own tests and can be played at once. Change it into the environment you need.

    Example: ludus new my_game

    Start from a recipe: ludus new my_desk --like sql_desk
    """
    import shutil

    from ludus.errors import UserError

    _check_name(name)
    if like is not None and like not in recipes():
        raise UserError(f"there is no recipe {like!r:.80}", f"Choose one of: {', '.join(recipes())}")
    folder = path / name
    if folder.exists() or folder.is_symlink():
        raise UserError(f"{folder} exists already", "Choose another name, or another folder with --path DIR")
    try:
        folder.mkdir(parents=True)
        write(folder, name) if like is None else copy_recipe(like, folder, name)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise UserError(f"cannot write {folder}: {error.strerror}", "Choose another folder with --path DIR") from error
    _print_next_steps(folder)


def recipes() -> list[str]:
    """The names of the recipes that `--like` copies."""
    return sorted(file.parent.name for file in COOKBOOK.glob("*/environment.yaml"))


def copy_recipe(recipe: str, folder: Path, name: str) -> None:
    """Copy a recipe and rename it in `environment.yaml`, in the README's title and commands, and in its test's name."""
    words = {f"name: {recipe}\n": f"name: {name}\n", f"# {recipe}\n": f"# {name}\n", f"./{recipe}": f"./{name}"}
    for source in sorted((COOKBOOK / recipe).rglob("*")):
        inner = source.relative_to(COOKBOOK / recipe)
        if source.is_dir() or "__pycache__" in inner.parts:
            continue
        content = source.read_text(encoding="utf-8")
        if source.name in ("environment.yaml", "README.md"):
            for word, other in words.items():
                content = content.replace(word, other)
        target = folder / (f"test_{name}.py" if source.name == f"test_{recipe}.py" else inner)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")


def write(folder: Path, name: str) -> None:
    """Fill a folder from the template."""
    words = {"{{name}}": name, "{{class}}": _class_name(name)}
    for source in sorted(TEMPLATE.rglob("*.tmpl")):
        content = source.read_text(encoding="utf-8")
        target = str(source.relative_to(TEMPLATE)).removesuffix(".tmpl").replace("test.py", f"test_{name}.py")
        for marker, word in words.items():
            content = content.replace(marker, word)
        (folder / target).parent.mkdir(exist_ok=True)
        (folder / target).write_text(content, encoding="utf-8")


def _class_name(name: str) -> str:
    """A class name that shadows nothing its file uses (`Task`, `ValueError`, `None`)."""
    import ludus

    plain = "".join(part.capitalize() for part in name.split("_"))
    return f"{plain}Resources" if plain in ludus.__all__ or hasattr(builtins, plain) else plain


def _check_name(name: str) -> None:
    from ludus.errors import UserError

    if re.fullmatch(r"[a-z][a-z0-9_]*", name, re.ASCII) and not keyword.iskeyword(name) and len(name) <= 64:
        return
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower(), flags=re.ASCII).strip("_")
    suggestion = (f"my_{plain}" if plain[:1].isdigit() or keyword.iskeyword(plain) else plain)[:64] or "my_game"
    raise UserError(
        f"{name!r:.80} is not a valid environment name: {_name_problem(name)}", f"Try: ludus new {suggestion}"
    )


def _name_problem(name: str) -> str:
    if name[:1].isdigit():
        return "it begins with a digit, and must begin with a lower case letter"
    if keyword.iskeyword(name):
        return "it is a word of the Python language"
    if len(name) > 64:
        return "it is longer than 64 letters"
    return "use lower case letters, digits and _, and begin with a letter"


def _print_next_steps(folder: Path) -> None:
    """Print the created files and the commands to try next."""
    from ludus.cli.screen import stdout_console, text

    where = str(folder) if folder.is_absolute() else f"./{folder}"
    quoted = shlex.quote(where)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    commands = [
        f"pytest {quoted}",
        f"ludus qualify {quoted}",
        f"ludus chat {quoted}",
        f"ludus collect {quoted} --model local",
    ]
    if importlib.util.find_spec("pytest") is None:
        commands.insert(0, "pip install pytest")
    lines = [f"created {where}:", *(f"  {file}" for file in files), "next:", *(f"  {command}" for command in commands)]
    stdout_console().print(text("\n".join(lines)), soft_wrap=True)

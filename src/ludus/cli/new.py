"""`ludus new`: a small environment that works, to change into one's own."""

from __future__ import annotations

import builtins
import importlib.util
import keyword
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

TEMPLATE = Path(__file__).parent / "template"


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower case, as in my_game.")],
    path: Annotated[Path, typer.Option("--path", help="The folder to make it in.")] = Path(),
) -> None:
    """Make a new environment in a folder.

    It is small, passes its own test and can be played at once; change it into what you need.

    Example: ludus new my_game
    """
    import shutil

    from ludus.errors import UserError

    _check(name)
    folder = path / name
    if folder.exists() or folder.is_symlink():
        raise UserError(f"{folder} exists already", "Choose another name, or another place with --path DIR")
    try:
        folder.mkdir(parents=True)
        write(folder, name)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise UserError(f"cannot write {folder}: {error.strerror}", "Choose another place with --path DIR") from error
    _tell(folder)


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
    """The class of an environment, which must not hide what its file works with (`Task`, `ValueError`, `None`)."""
    import ludus

    plain = "".join(part.capitalize() for part in name.split("_"))
    return f"{plain}Resources" if plain in ludus.__all__ or hasattr(builtins, plain) else plain


def _check(name: str) -> None:
    from ludus.errors import UserError

    if re.fullmatch(r"[a-z][a-z0-9_]*", name, re.ASCII) and not keyword.iskeyword(name) and len(name) <= 64:
        return
    likely = re.sub(r"[^a-z0-9]+", "_", name.lower(), flags=re.ASCII).strip("_0123456789")[:64]
    if likely and keyword.iskeyword(likely):
        likely += "_game"
    hint = f"Try: ludus new {likely}" if likely else "Try: ludus new my_game"
    raise UserError(f"{name!r:.80} cannot name an environment: use lower case letters, digits and _", hint)


def _tell(folder: Path) -> None:
    """What was made, and the commands that come next."""
    from ludus.cli.screen import screen, text

    where = str(folder) if folder.is_absolute() else f"./{folder}"
    quoted = shlex.quote(where)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    commands = [f"pytest {quoted}", f"ludus chat {quoted}", f"ludus collect {quoted} --model local"]
    if importlib.util.find_spec("pytest") is None:
        commands.insert(0, "pip install pytest")
    lines = [f"made {where}:", *(f"  {file}" for file in files), "next:", *(f"  {command}" for command in commands)]
    screen().print(text("\n".join(lines)), soft_wrap=True)

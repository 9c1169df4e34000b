"""`ludus view`: look at runs in a browser."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ludus.cli.commands import Argument, Option

if TYPE_CHECKING:
    from ludus.store.prices import Price
    from ludus.view.serving import Viewer


def view(
    paths: Annotated[
        list[Path] | None,
        Argument(metavar="[PATH...]", help="Runs, or folders that hold runs; default: runs, or this folder."),
    ] = None,
    port: Annotated[int, Option(min=0, max=65535, help="The port on this machine; 0 takes a free one.")] = 0,
    open_: Annotated[bool, Option("--open", help="Open the link in your browser.")] = False,
    prices: Annotated[
        Path | None, Option(metavar="FILE", help="A price list, to show costs; as in ludus profile.")
    ] = None,
    tokenizer: Annotated[
        str | None, Option(metavar="DIR", help="A tokenizer of transformers, to show token ids as text.")
    ] = None,
    play: Annotated[
        list[str] | None, Option(metavar="ENV", help="Let the page play this environment; may be repeated.")
    ] = None,
    play_model: Annotated[
        str | None, Option(metavar="MODEL", help="With --play: the model to talk to; as in ludus chat.")
    ] = None,
    export: Annotated[
        Path | None, Option(metavar="FILE", help="Write one self-contained page that you can send to others.")
    ] = None,
    publish: Annotated[
        Path | None, Option(metavar="DIR", help="Write a static site instead, for any web server.")
    ] = None,
    query: Annotated[str, Option("--query", "-q", help="With --export or --publish: which rollouts.")] = "",
    json_: Annotated[bool, Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Look at runs in a browser, also while they are collected.

    The page is served on this machine only, and its link works once: press Enter for another one. Ctrl-C ends it.

    Example: ludus view runs

    Example: ludus view runs/first --export report.html --query "outcome:failed"
    """
    from ludus.errors import UserError
    from ludus.runtime import running
    from ludus.view.serving import Viewer

    if play_model is not None and not play:
        raise UserError("--play-model needs an environment", "Add --play ENV")
    if query and export is None and publish is None:
        raise UserError("--query chooses the rollouts that are written", "Add --export FILE, or search in the page")
    places = paths or [Path("runs") if Path("runs").is_dir() else Path()]
    costs = _prices(prices)
    if export is not None or publish is not None:
        _write(places, costs, tokenizer, export, publish, query, as_json=json_)
        return
    _check_play(play or [], play_model)
    viewer = Viewer(places, port=port, prices=costs, tokenizer=tokenizer, play=play, play_model=play_model)
    running.raise_file_limit()
    running.run(_until_stopped(viewer, as_json=json_, opens=open_))


def _prices(path: Path | None) -> dict[str, Price] | None:
    if path is None:
        return None
    from ludus.store.prices import read_prices

    return read_prices(path)


def _check_play(environments: list[str], model: str | None) -> None:
    """Report a wrong name now, not when somebody presses Start."""
    if not environments:
        return
    from ludus.environment import Environment
    from ludus.models import open_model

    for name in environments:
        Environment.load(name)
    if model is not None:
        open_model(model)


def _write(
    paths: list[Path],
    prices: dict[str, Price] | None,
    tokenizer: str | None,
    page: Path | None,
    site: Path | None,
    query: str,
    *,
    as_json: bool,
) -> None:
    """Write a page, a site or both."""
    from ludus.cli.screen import clean, safe_json
    from ludus.errors import UserError
    from ludus.view.exporting import export_page, publish
    from ludus.view.live import LiveRuns
    from ludus.view.query import parse_query
    from ludus.view.tokenizer import Tokenizer

    parse_query(query)  # a mistake is reported before anything is indexed
    runs = LiveRuns(paths, prices or {})
    if not runs.runs:
        places = ", ".join("this folder" if path == Path() else str(path) for path in paths)
        raise UserError(f"there is no run in {places}", "Collect one with: ludus collect ENV --output runs/first")
    runs.index_all()
    decoder = Tokenizer(tokenizer) if tokenizer is not None else None
    for write, to in ((export_page, page), (publish, site)):
        if to is not None:
            written = write(runs, to, query, decoder)
            said = f"{written['rollouts']:,} rollouts, {written['bytes'] / 1e6:.1f} MB: {to}"
            print(safe_json(written, indent=None) if as_json else clean(said))


async def _until_stopped(viewer: Viewer, *, as_json: bool, opens: bool) -> None:
    import asyncio

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await viewer.start()
    try:
        _show(viewer, as_json)
        if opens:
            import webbrowser

            await asyncio.to_thread(webbrowser.open, viewer.link())
        if sys.stdin is not None and sys.stdin.isatty():
            loop.add_reader(sys.stdin.fileno(), _on_enter, viewer)
        await stop.wait()
    finally:
        await viewer.stop()


def _show(viewer: Viewer, as_json: bool) -> None:
    from ludus.cli.screen import safe_json

    runs = len(viewer.runs.runs)
    if as_json:
        print(safe_json({"link": viewer.link(), "url": viewer.url, "runs": runs}, indent=None), flush=True)
        return
    print(f"{runs:,} run{'' if runs == 1 else 's'}. Open this link (it works once):\n\n  {viewer.link()}\n", flush=True)
    again = "Enter prints another link, " if sys.stdin is not None and sys.stdin.isatty() else ""
    print(f"{again}Ctrl-C ends the viewer.", flush=True)


def _on_enter(viewer: Viewer) -> None:
    import asyncio

    if sys.stdin.readline():
        print(f"  {viewer.link()}", flush=True)
    else:  # the end of the input
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

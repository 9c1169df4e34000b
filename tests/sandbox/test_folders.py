"""Folders at the root that a sandbox's spec names lie in HOME, so that snapshots hold them."""

from __future__ import annotations

from sandboxes import needs

from ludus.sandbox import HOME, SandboxSpec
from ludus.sandbox.bubblewrap import BubblewrapProvider


@needs("bubblewrap")
async def test_a_folder_of_home_is_found_at_the_root_and_is_part_of_a_snapshot():
    provider, spec = BubblewrapProvider(), SandboxSpec(folders=("app",))
    async with await provider.open(spec) as first, await provider.open(spec) as second:
        await first.exec("mkdir ~/app && echo hello > /app/file")
        await second.restore(await first.snapshot())
        assert (await second.exec(["cat", "/app/file", f"{HOME}/app/file"], cwd="/app")).text == "hello\nhello\n"
        assert not (await second.exec("echo x > /other")).ok
    await provider.close()

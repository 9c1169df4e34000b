"""The tool of the job, for verifiers, which runs this file as a program that serves the tool over MCP."""

import verifiers.v1 as vf
from job import look_up
from verifiers.v1.mcp.toolset import SharedToolsetConfig


class LookUp(vf.Toolset[SharedToolsetConfig]):
    @vf.tool
    async def look_up(self, number: int) -> str:
        """Look up a number."""
        return look_up(number)


if __name__ == "__main__":
    LookUp.run()

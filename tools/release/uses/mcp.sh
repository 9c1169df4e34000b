# a client of MCP calls a tool of `ludus serve --mcp --stdio`
# without: No module named 'mcp'
cat > client.py <<'END'
import asyncio

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    server = StdioServerParameters(command="ludus", args=["serve", "example_mcp_weather", "--mcp", "--stdio"])
    async with stdio_client(server) as (incoming, outgoing), ClientSession(incoming, outgoing) as session:
        await session.initialize()
        answer = await session.call_tool("get_weather", {"city": "Lisbon"})
        assert "Lisbon" in str(answer), answer


asyncio.run(main())
END
python client.py

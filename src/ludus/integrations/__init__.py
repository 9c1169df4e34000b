"""Other frameworks and protocols: MCP, OpenEnv, verifiers."""

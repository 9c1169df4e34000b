"""Clients for other protocols and frameworks: MCP, OpenEnv, verifiers."""

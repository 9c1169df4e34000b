"""Clients for other protocols: MCP."""

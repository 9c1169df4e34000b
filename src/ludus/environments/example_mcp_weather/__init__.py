"""A weather service whose tool is found over MCP."""

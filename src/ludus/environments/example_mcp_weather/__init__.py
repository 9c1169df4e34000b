"""A weather service whose tool an agent can find over MCP."""

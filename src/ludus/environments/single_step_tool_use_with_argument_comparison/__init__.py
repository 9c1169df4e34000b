"""The next step of a conversation with tools, compared with the expected step."""

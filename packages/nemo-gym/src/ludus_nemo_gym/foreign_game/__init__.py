"""The environment for a game server that is not Ludus's code."""

"""Agents that ship with Ludus."""

"""Competitive programming: programs are judged by their output or return value."""

"""Competitive programming: programs are judged by what they print or return."""

"""NetHack as text, with actions by name."""

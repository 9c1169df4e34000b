"""NeMo Gym's configuration files and `ng_*` commands, on top of Ludus. Ludus itself never imports this package."""

"""NeMo Gym's configuration files and `ng_*` commands, on top of Ludus. Nothing outside this package imports it."""

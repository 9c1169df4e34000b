"""The names of NeMo Gym that trainers import, implemented by Ludus. The README lists them."""

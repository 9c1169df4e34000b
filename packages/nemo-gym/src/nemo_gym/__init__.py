"""The part of `nemo_gym` that trainers import, played by Ludus: see the README beside this package."""

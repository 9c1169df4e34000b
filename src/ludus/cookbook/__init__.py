"""Recipes: small complete environments to start from. `ludus new NAME --like RECIPE` copies one.

A recipe is an ordinary environment folder. It imports nothing from its neighbours, so that a copy works anywhere.
"""

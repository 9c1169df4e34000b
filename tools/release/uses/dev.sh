# pytest, ruff, mypy and pyright accept what `ludus new` creates
# without: No module named pytest
ludus new my_game
python -m pytest -q my_game
ruff check my_game
mypy my_game/resources.py
pyright my_game/resources.py

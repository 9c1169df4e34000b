"""Methods that an environment lacks, misspells or gives the wrong signature are found when it is loaded."""

from __future__ import annotations

import contextlib
import functools

import pytest

import ludus
from ludus import Environment, Resources, ScriptedModel, UserError, tool

HEAD = "from contextlib import asynccontextmanager\nfrom ludus import Agent, Game, Resources, tool\n\n\n"
VERIFY = "    async def verify(self, task, response): return 1.0\n"


def make(folder, code, agent="{type: simple}"):
    (folder / "environment.yaml").write_text(f"name: mine\nresources: resources.py:Mine\nagent: {agent}\n")
    (folder / "resources.py").write_text(HEAD + code)
    return folder


def complaint(folder, code, agent="{type: simple}"):
    with pytest.raises(UserError) as caught:
        Environment.load(make(folder, code, agent))
    start = f"{folder / 'resources.py'}:"
    assert str(caught.value).startswith(start)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(start)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "class Mine(Resources):\n    pass\n",
            "5: Mine has no method verify. Write async def verify(self, task, response)",
        ),
        (
            "class Mine(Resources):\n    async def verfy(self, task, response): return 1.0\n",
            "6: Mine has no method verify. Rename verfy to verify",
        ),
        (
            "class Mine(Game):\n    async def reset(self, task): return None\n",
            "5: Mine has no method step. Write async def step(self, task, response)",
        ),
        (
            f"class Mine(Resources):\n{VERIFY}    async def opne(self, task): self.x = 1\n",
            "7: Mine.opne is never called. Did you mean to call it open?",
        ),
        (
            f"class Mine(Resources):\n{VERIFY}    async def clos(self): self.x = 1\n",
            "7: Mine.clos is never called. Did you mean to call it close?",
        ),
    ],
)
def test_a_missing_or_misspelled_method_is_refused_with_the_line_to_write(tmp_path, code, says):
    assert complaint(tmp_path, code) == says


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (
            "async def verify(self, task): return 1.0",
            "6: Mine.verify(self, task) is called with (task, response). Write async def verify(self, task, response)",
        ),
        ("async def verify(task, response): return 1.0", "6: Mine.verify(task, response) is called with (task, resp"),
        ("def verify(self, task, response, extra): return 1.0", "6: Mine.verify(self, task, response, extra) is calle"),
        ("def verify(self, task, *, response): return 1.0", "6: Mine.verify(self, task, *, response) is called with"),
        (
            "def verify(self, response, task): return 1.0",
            "6: Mine.verify(self, response, task) is called with (task, response). Write async def verify(self, task, ",
        ),
        (
            "async def verify(self, task, response): yield 1.0",
            "6: Mine.verify is a generator, because it contains yield. Write async def verify(self, task, response) w",
        ),
        ("verify = 1.0", "5: Mine.verify is not a method. Write async def verify(self, task, response)"),
        ("async def verify_group(self, task): return []", "6: Mine.verify_group(self, task) is called with (task, re"),
        (f"{VERIFY.strip()}\n    async def open(self): ...", "7: Mine.open(self) is called with (task). Write async "),
        (f"{VERIFY.strip()}\n    async def close(self, task): ...", "7: Mine.close(self, task) is called with (). Wr"),
        (f"{VERIFY.strip()}\n    def fork(self, task): ...", "7: Mine.fork(self, task) is called with (). Write def"),
        (f"{VERIFY.strip()}\n    def tools(self, task): ...", "7: Mine.tools(self, task) is called with (). Write de"),
        (f"{VERIFY.strip()}\n    async def tools(self): ...", "7: Mine.tools is async def, and it is not awaited. W"),
        (f"{VERIFY.strip()}\n    def call(self, name, arguments): ...", "7: Mine.call is def, and it is awaited. Wri"),
        (
            f"{VERIFY.strip()}\n    @classmethod\n    async def share(cls, config): yield 1",
            "7: Mine.share is not a context manager. Write @asynccontextmanager directly above its def",
        ),
        (
            f"{VERIFY.strip()}\n    @asynccontextmanager\n    async def share(cls, config): yield 1",
            "7: Mine.share is called on the class. Write @classmethod as its first decorator",
        ),
        (
            f"{VERIFY.strip()}\n    @classmethod\n    @asynccontextmanager\n    async def share(cls): yield 1",
            "7: Mine.share(cls) is called with (config). Write async def share(cls, config)",
        ),
    ],
)
def test_a_wrong_signature_is_refused_with_file_line_method_and_what_is_expected(tmp_path, method, says):
    assert complaint(tmp_path, f"class Mine(Resources):\n    {method}\n").startswith(says)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (
            "async def step(self, task): ...",
            "6: Mine.step(self, task) is called with (task, response). Write async def",
        ),
        (
            "def step(self, task, response): ...\n    def reset(self): ...",
            "7: Mine.reset(self) is called with (task). ",
        ),
    ],
)
def test_the_methods_of_a_game_are_checked_too(tmp_path, method, says):
    assert complaint(tmp_path, f"class Mine(Game):\n    {method}\n").startswith(says)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("pass", "9: Plays has no method act. Write async def act(self, episode)"),
        (
            "async def act(self): ...",
            "10: Plays.act(self) is called with (episode). Write async def act(self, episode)",
        ),
        ("def act(self, episode): ...", "10: Plays.act is def, and it is awaited. Write async def act(self, episode)"),
    ],
)
def test_an_agents_act_is_checked_too(tmp_path, method, says):
    code = f"class Mine(Resources):\n{VERIFY}\n\nclass Plays(Agent):\n    {method}\n"
    assert complaint(tmp_path, code, "{type: 'resources.py:Plays'}") == says


@pytest.mark.parametrize(
    ("parameter", "says"),
    [
        ("item: Itme", "8: the tool look: name 'Itme' is not defined. Import it"),
        ("item: object()", "8: the tool look: "),
    ],
)
def test_a_tool_whose_schema_cannot_be_made_is_refused(tmp_path, parameter, says):
    body = f"class Mine(Resources):\n{VERIFY}\n    @tool\n    def look(self, {parameter}) -> str: ...\n"
    (tmp_path / "environment.yaml").write_text("name: mine\nresources: resources.py:Mine\n")
    (tmp_path / "resources.py").write_text(f"from __future__ import annotations\n{HEAD[:-1]}{body}")
    with pytest.raises(UserError) as caught:
        Environment.load(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'resources.py'}:{says}")
    assert "\n" not in str(caught.value)


def test_what_python_can_call_is_accepted():
    def counted(method):
        @functools.wraps(method)
        async def wrapper(*args, **kwargs):
            return await method(*args, **kwargs)

        return wrapper

    class Judging:
        def verify(self, task, response, strict=False):
            return 1.0

    class Mixed(Judging, Resources):
        async def open(self, *args): ...

        def opened(self): ...

        def reopen(self): ...

        @staticmethod
        def fork(): ...

        @counted
        async def close(self): ...

        @classmethod
        @contextlib.asynccontextmanager
        async def share(cls, config, more=None):
            yield None

        @tool
        def look(self, item: str) -> str:
            return self.opne() + item

        def opne(self):  # called above, so it is no misspelled open
            return "x"

    class Renamed(Resources):
        async def verify(self, row, answer):
            return 1.0

    assert Environment.load(Mixed).name == "Mixed"
    assert Environment.load(Renamed).name == "Renamed"


@pytest.mark.parametrize("name", ["open", "verify", "verify_group", "close", "fork"])
@pytest.mark.parametrize("word", ["def", "async def"])
def test_these_methods_may_be_def_or_async_def(tmp_path, name, word):
    takes = {"open": "self, task", "verify": "self, task, response", "verify_group": "self, task, responses"}
    extra = "" if name == "verify" else VERIFY
    code = f"class Mine(Resources):\n{extra}    {word} {name}({takes.get(name, 'self')}): ...\n"
    assert Environment.load(make(tmp_path, code)).name == "mine"


@pytest.mark.parametrize("word", ["def", "async def"])
def test_a_games_methods_may_be_def_or_async_def(tmp_path, word):
    code = f"class Mine(Game):\n    {word} reset(self, task): ...\n    {word} step(self, task, response): ...\n"
    assert Environment.load(make(tmp_path, code)).name == "mine"


def test_no_model_is_called_for_an_environment_without_verify():
    class Silent(Resources):
        pass

    model = ScriptedModel(["never asked"])
    with pytest.raises(UserError, match=r"test_signatures.py:\d+: Silent has no method verify"):
        ludus.collect(Silent, model=model, input=[{"responses_create_params": {"input": "hi"}}])


def test_every_environment_of_ours_passes_the_checks():
    from ludus.folder import folders

    loaded = []
    for folder in folders().values():
        with contextlib.suppress(ludus.errors.MissingExtra):
            loaded.append(Environment.load(folder).name)
    assert {"mcqa", "blackjack", "workplace_assistant"}.issubset(loaded)  # these need no extra

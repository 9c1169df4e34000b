"""Generated datasets: the same rows for the same seed, generated once, and always with a limit."""

from __future__ import annotations

import orjson
import pytest

import ludus
from ludus import Environment, ScriptedModel, Task, UserError
from ludus.data.rows import Rows
from ludus.dataset import Generated

YAML = """
name: sums
resources: code.py:Sums
datasets:
  - name: example
    path: example.jsonl
  - name: endless
    generate: code.py:stream
    settings: {most: 9}
"""
CODE = """
import random
from ludus import Resources

class Sums(Resources):
    async def verify(self, task, response):
        return float(response.output_text == str(task.a + task.b))

def stream(seed, most=5, step=1):
    numbers = random.Random(seed)
    while True:
        a, b = numbers.randrange(0, most, step), numbers.randrange(0, most, step)
        yield {"responses_create_params": {"input": f"{a} + {b}?"}, "a": a, "b": b}
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "sums"
    made.mkdir()
    (made / "environment.yaml").write_text(YAML)
    (made / "code.py").write_text(CODE)
    (made / "example.jsonl").write_text('{"responses_create_params": {"input": "1 + 1?"}, "a": 1, "b": 1}\n')
    return made


def adds(request):
    a, _, b = request.input[-1]["content"].rstrip("?").split()
    return str(int(a) + int(b))


def collect(folder, **options):
    return ludus.collect(folder, model=ScriptedModel(adds), dataset="endless", **options)


def questions(collection):
    return sorted(rollout.to_row()["responses_create_params"]["input"] for rollout in collection)


def counting(seed):
    for number in range(1_000_000):
        yield {"responses_create_params": {"input": f"{seed}: {number}"}}


def rows(function=counting, limit=None, seed=0, **settings):
    return Rows(Generated("numbers", function, settings), Task.model_validate, limit, seed)


def test_a_generated_dataset_needs_a_limit(folder):
    with pytest.raises(UserError, match="dataset endless is endless. Say how many rows to use: --limit N"):
        collect(folder)


def test_rows_are_generated_once_and_are_the_same_for_the_same_seed():
    seeds = []

    def stream(seed):
        seeds.append(seed)
        return counting(seed)

    made = rows(stream, limit=3, seed=4)
    survey = made.survey()
    ids = [task_id for task_id, _, _ in made]
    assert ids == [task_id for task_id, _, _ in made]
    assert seeds == [4]
    assert survey == rows(limit=3, seed=4).survey() != rows(limit=3, seed=5).survey()
    assert [task_id for task_id, _, _ in rows(limit=5, seed=4)][:3] == ids


def test_the_first_generated_row_can_be_read_without_a_limit():
    assert next(iter(rows()))[1]["responses_create_params"]["input"] == "0: 0"


def test_a_bad_generated_row_is_reported_with_its_number():
    with pytest.raises(UserError, match="numbers:2: responses_create_params is missing"):
        rows(lambda seed: iter([next(counting(seed)), {}]), limit=3).survey()


def test_data_settings_become_arguments_of_the_generating_function(folder):
    first = questions(collect(folder, limit=30))
    assert questions(collect(folder, limit=30)) == first != questions(collect(folder, limit=30, seed=1))
    even = questions(collect(folder, limit=30, settings={"data.step": 2}))
    assert all(int(text.split()[0]) % 2 == 0 for text in even)
    assert questions(collect(folder, limit=30, seed=1, settings={"data.seed": 0})) == first
    with pytest.raises(UserError, match=r"dataset endless has no setting data.stpe. Did you mean step?"):
        collect(folder, limit=30, settings={"data.stpe": 2})


def test_resume_continues_the_same_generated_rows_and_refuses_different_ones(folder, tmp_path):
    output = tmp_path / "run"
    collect(folder, limit=8, output=output)
    kept = (output / "rollouts.jsonl").read_bytes().splitlines()
    (output / "rollouts.jsonl").write_bytes(b"\n".join(kept[:3]) + b"\n")
    resumed = collect(folder, limit=8, output=output, resume=True)
    assert sorted(r.rollout_id for r in resumed) == sorted(orjson.loads(line)["rollout_id"] for line in kept)
    with pytest.raises(UserError, match="describes a different run"):
        collect(folder, limit=8, output=output, resume=True, settings={"data.step": 2})


def test_a_dataset_is_chosen_by_name(folder):
    assert ludus.collect(folder, model=ScriptedModel(adds)).metrics["counts"]["completed"] == 1
    with pytest.raises(UserError, match="has no dataset endles. Did you mean endless?"):
        ludus.collect(folder, model=ScriptedModel(adds), dataset="endles")
    with pytest.raises(UserError, match="both --input and --dataset are given"):
        collect(folder, input=[])
    with pytest.raises(UserError, match="dataset example is a file and has no setting data.step"):
        ludus.collect(folder, model=ScriptedModel(adds), settings={"data.step": 2})
    with pytest.raises(UserError, match="is generated, not a file"):
        Environment.load(folder).dataset("endless")


@pytest.mark.parametrize("entry", ["{name: x}", "{name: x, path: a, generate: b.py:c}"])
def test_a_dataset_has_exactly_one_of_path_and_generate(folder, entry):
    (folder / "environment.yaml").write_text(f"name: sums\nresources: code.py:Sums\ndatasets: [{entry}]\n")
    with pytest.raises(UserError, match="a dataset needs a `path` or a function to `generate`"):
        Environment.load(folder)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "def stream(): yield {}",
            "code.py:5: stream() got an unexpected keyword argument 'seed'. Write def stream(",
        ),
        (
            "def stream(seed, level): yield {}",
            "code.py:5: stream() missing a required argument: 'level'. Write def stream(",
        ),
        ("def stream(seed):\n    {}['x']\n    yield {}", "code.py:6: KeyError: 'x'"),
        ("def stream(seed):\n    yield ROW\n    int('x')", "code.py:7: ValueError: invalid literal"),
        ("def stream(seed):\n    import json\n    return json.loads('x')", "code.py:7: JSONDecodeError: "),
        ("def stream(seed): return None", "code.py:5: the function returns None and no rows. Yield the rows"),
        (
            "async def stream(seed): yield ROW",
            "code.py:5: the function is async, and rows are read without await. Write def",
        ),
        ("async def stream(seed): return [ROW]", "code.py:5: the function is async, and rows are read without await"),
        ("import sys\ndef stream(seed): sys.exit(0)", "code.py:6: SystemExit: 0"),
        ("def stream(seed): raise ValueError('one\\ntwo')", "code.py:5: ValueError: one two"),
    ],
)
def test_a_broken_generating_function_is_reported_in_one_line_with_file_and_line(folder, code, says):
    yaml = "name: sums\nresources: code.py:Sums\ndatasets: [{name: endless, generate: 'code.py:stream'}]\n"
    (folder / "environment.yaml").write_text(yaml)
    head = "from ludus import Resources\nROW = {'responses_create_params': {'input': 'hi'}}\n"
    head += "class Sums(Resources): verify = lambda self, task, response: 1.0\n"
    (folder / "code.py").write_text(f"{head}\n{code}\n")
    with pytest.raises(UserError) as caught:
        collect(folder, limit=3)
    assert str(caught.value).startswith(f"dataset endless: {folder}/{says}")
    assert "\n" not in str(caught.value)


def test_a_setting_that_breaks_the_generating_function_is_reported_with_file_and_line(folder):
    with pytest.raises(UserError, match=r"dataset endless: .*code.py:12: (Value|Type)Error: "):
        collect(folder, limit=3, settings={"data.most": "x"})


def test_a_generating_function_may_take_any_keyword_settings():
    made = rows(lambda seed, **settings: iter([{"responses_create_params": {"input": str(settings)}}]), limit=1, n=3)
    assert next(iter(made))[1]["responses_create_params"]["input"] == "{'n': 3}"


def test_a_user_error_of_the_generating_function_is_passed_on_unchanged():
    def stream(seed):
        raise UserError("there is no such level")

    with pytest.raises(UserError, match="^there is no such level$"):
        rows(stream, limit=1).survey()


@pytest.mark.parametrize("bad", [object(), "\ud800", {1: 2}])
def test_a_generated_row_that_is_not_json_is_reported_with_its_number(bad):
    with pytest.raises(UserError, match=r"^numbers:2: .*Each row must be a JSON object$"):
        rows(lambda seed: iter([next(counting(seed)), {"x": bad}]), limit=3).survey()


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("code.py:random", "code.py:random is not a function. Write def rows"),
        ("code.py:steam", "code.py has no steam. Did you mean stream?"),
        ("code.py:Sums", "got an unexpected keyword argument 'seed'"),
    ],
)
def test_a_wrong_generate_reference_is_reported_with_its_key_in_environment_yaml(folder, reference, says):
    yaml = f"name: sums\nresources: code.py:Sums\ndatasets: [{{name: endless, generate: '{reference}'}}]\n"
    (folder / "environment.yaml").write_text(yaml)
    with pytest.raises(UserError, match=says) as caught:
        collect(folder, limit=3)
    if "Sums" not in reference:
        assert str(caught.value).startswith(f"{folder / 'environment.yaml'}: datasets.endless.generate: ")

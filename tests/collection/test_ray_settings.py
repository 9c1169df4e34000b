"""What a collection on Ray needs that no cluster is needed to check: declared needs, the code for nodes, messages."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray_runs import environment, rows, run

import ludus
from ludus import Environment, UserError
from ludus.collection.engines.ray_code import Code, read_runtime_environment
from ludus.collection.engines.setup import SHIPPED, WorkerSetup
from ludus.collection.options import Options
from ludus.folder import WorkerNeeds
from ludus.runtime.ray_cluster import error_words, start_reason


def test_an_environment_declares_what_its_workers_need_and_set_changes_it(tmp_path):
    text = "{cpus: 0.5, gpus: 1, memory: 1.5GiB, resources: {browser: 2}, sessions: 8, packages: [chess]}"
    found = Environment.load(environment(tmp_path / "waits", text))
    assert str(found.worker) == "0.5 CPU, 1 GPU, 1.5 GiB of memory, 2 browser"
    found.configure({"worker.sessions": 4, "worker.memory": "2GB"})
    assert (found.worker.sessions, found.worker.memory_bytes, found.worker.packages) == (4, 2 * 10**9, ["chess"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("{cpu: 1}", "worker has no setting cpu. Did you mean cpus?"),
        ("{memory: much}", "write a number of bytes, or as in 2GiB"),
        ("{resources: {browser: 0}}", "worker.resources.browser"),
        ("{sessions: 0}", "worker.sessions"),
    ],
)
def test_a_wrong_need_is_one_line_that_names_the_setting(tmp_path, given, told):
    with pytest.raises(UserError) as found:
        Environment.load(environment(tmp_path / "waits", given))
    assert told in str(found.value)
    assert "\n" not in str(found.value)


needs = st.builds(
    WorkerNeeds,
    cpus=st.floats(0, 64),
    memory=st.integers(0, 10**12),
    resources=st.dictionaries(st.sampled_from("abc"), st.floats(0.5, 8)),
    sessions=st.none() | st.integers(1, 100),
)


@given(st.lists(needs, min_size=1, max_size=4))
def test_a_worker_of_several_environments_has_enough_for_each(each):
    all_of_them = WorkerNeeds.of_all(each)
    for one in each:
        assert all_of_them.cpus >= one.cpus
        assert (all_of_them.memory_bytes or 0) >= (one.memory_bytes or 0)
        assert all(all_of_them.resources[name] >= amount for name, amount in one.resources.items())
        assert one.sessions is None or (all_of_them.sessions or 10**9) <= one.sessions


def test_another_machine_loads_an_environment_and_a_model_from_the_copy_alone(tmp_path, monkeypatch):
    folder = environment(tmp_path / "waits")
    monkeypatch.syspath_prepend(str(folder))
    model = ludus.models.open_model("scripted:ray_answers:respond")
    assert model.name
    setup = WorkerSetup([Environment.load(folder)], Options(model="scripted:ray_answers:respond"))
    with Code(setup, shipped=True) as code:
        sent, copy = code.runtime_environment({"pip": ["x"]}, ["chess"])["py_modules"]
        assert (Path(sent), Path(copy).name) == (Path(ludus.__file__).parent, SHIPPED)
        (folder / "resources.py").unlink()  # as on a machine that does not have it
        program = (
            "import sys; sys.path[:] = [sys.argv[1], *[p for p in sys.path if p != sys.argv[2]]]\n"
            "from ludus.collection.engines.setup import WorkerSetup\n"
            "setup = WorkerSetup.decode(sys.stdin.buffer.read())\n"
            "(found,) = setup.environments\n"
            "import ray_answers\n"
            "print((found.folder / 'told.txt').read_text(), found.resources.__name__, ray_answers.__file__)"
        )
        command = [sys.executable, "-c", program, str(Path(copy).parent), str(folder)]
        done = subprocess.run(command, input=code.setup, capture_output=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr.decode()
        told, name, place = done.stdout.decode().rsplit(maxsplit=2)
        assert (told, name) == ("a file beside the code", "Waits")
        assert place.startswith(copy)
    assert not Path(copy).exists()


def test_declared_packages_join_the_runtime_environment_or_are_refused(tmp_path):
    code = Code(WorkerSetup([]), shipped=False)
    assert code.runtime_environment({"pip": ["a"]}, ["b"]) == {"pip": ["a", "b"]}
    assert code.runtime_environment({"pip": {"packages": ["a"]}}, ["b"]) == {"pip": {"packages": ["a", "b"]}}
    with pytest.raises(UserError, match="declare packages \\(b\\), and the runtime environment has no list `pip`"):
        code.runtime_environment({"conda": "base"}, ["b"])
    (tmp_path / "env.yaml").write_text("env_vars: {A: b}\n")
    assert read_runtime_environment(tmp_path / "env.yaml") == {"env_vars": {"A": "b"}}
    (tmp_path / "env.yaml").write_text("- a\n")
    with pytest.raises(UserError, match="must hold a mapping"):
        read_runtime_environment(tmp_path / "env.yaml")


def test_options_that_need_ray_are_refused_with_one_line(tmp_path, monkeypatch):
    folder = environment(tmp_path / "waits")
    monkeypatch.syspath_prepend(str(folder))
    with pytest.raises(UserError, match="--ray-env is for the nodes of a Ray cluster. Add --ray ADDRESS"):
        run(folder, "out", input=rows(1), ray_env={})
    if importlib.util.find_spec("ray") is None:
        with pytest.raises(UserError, match=r"ray is not installed. Install it with: pip install .*\[ray\]"):
            run(folder, "out", input=rows(1), ray="local")


def test_the_reason_of_a_failed_start_is_the_last_telling_line_of_rays_logs(tmp_path):
    logs = tmp_path / "session_2026" / "logs"
    logs.mkdir(parents=True)
    (logs / "raylet.out").write_text(
        "[I] start\n[C] agent_manager.cc: The raylet exited: the agent failed\n[I] bye\n"
        "[state-dump] - process_failed_runtime_env_setup_failed: 0\n- bytes errored: 0\n"
        "[2026-11-17 21:42:00,042 I 9146 9150] (raylet) main.cc: Failed to read a message from node\n"
    )
    assert start_reason(tmp_path) == "raylet.out: [C] agent_manager.cc: The raylet exited: the agent failed"
    assert start_reason(tmp_path / "nothing") == ""


PIP_FAILED = """Failed to set up runtime environment.
Could not create the actor because its associated runtime env failed to be created.
[Node 192.0.2.2] Traceback (most recent call last):
  File "/ray/runtime_env_agent.py", line 561, in _create_runtime_env_with_retry
    runtime_env_context = await asyncio.wait_for(
ray.utils.SubprocessCalledProcessError: Run cmd[9] failed with the following details.
Last 50 lines of stdout:
      ERROR: No matching distribution found for setuptools>=40.8.0

    note: This error originates from a subprocess, and is likely not a problem with pip."""
IMPORT_FAILED = """The actor died because of an error raised in its creation task, ray::WorkerActor.__init__()
  File "/ray/worker.py", line 5, in __init__
Traceback (most recent call last):
  File "/ray/actor.py", line 1, in <module>
    import orjson
ModuleNotFoundError: No module named 'orjson'"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            PIP_FAILED,
            "Failed to set up runtime environment. ERROR: No matching distribution found for setuptools>=40.8.0",
        ),
        (IMPORT_FAILED, f"{IMPORT_FAILED.splitlines()[0]} ModuleNotFoundError: No module named 'orjson'"),
        (
            "The actor died.\n\tclass_name: WorkerActor\nWorker exit type: SYSTEM_ERROR",
            "The actor died. Worker exit type: SYSTEM_ERROR",
        ),
        ("", "RuntimeError"),
    ],
)
def test_an_error_of_ray_is_told_with_the_end_of_its_traceback(text, words):
    assert error_words(RuntimeError(text)) == words

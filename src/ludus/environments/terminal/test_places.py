"""Which changes of an agent its judge sees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.environments.terminal.places import Places, is_below

PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
NAMES = st.sampled_from(
    [*"ab", "bin", "lib", "usr", "etc", "app", "tests", "logs", ".x", "conftest.py", "home", "root"]
)
PATHS = st.lists(NAMES, min_size=1, max_size=5).map(lambda names: "/" + "/".join(names))


@pytest.mark.parametrize(
    ("path", "is_carried"),
    [
        ("/app/answer.txt", True),
        ("/app/bin/tool", True),
        ("/srv/site/index.html", True),
        ("/var/lib/postgresql/16/main/base", True),
        ("/root/notes.txt", True),
        ("/answer.json", True),
        ("/tmp/result.csv", True),
        ("/home/user/work/x", True),
        ("/usr/local/bin/pytest", False),
        ("/usr/lib/python3/dist-packages/sitecustomize.py", False),
        ("/etc/ld.so.preload", False),
        ("/etc/profile", False),
        ("/lib/x.so", False),
        ("/root/.bashrc", False),
        ("/home/user/.local/lib/python3.13/site-packages/pytest/__init__.py", False),
        ("/app/tests/conftest.py", False),
        ("/app/x.pth", False),
        ("/app/.git/hooks/pre-commit", False),
        ("/app/.git/HEAD", True),
        ("/pyproject.toml", False),
        ("/app/pyproject.toml", True),
        ("/node_modules/x/index.js", False),
        ("/app/pytest.py", False),
        ("/app/json.pyc", False),
        ("/app/_pytest/__init__.py", False),
        ("/app/json/__init__.cpython-311-aarch64-linux-gnu.so", False),
        ("/tmp/random.py", False),
        ("/app/main.py", True),
        ("/app/src/types.py", True),
        ("/app/code/main.py", True),
        ("/app/calendar.json", True),
        ("/tests/test.sh", False),
        ("/logs/verifier/reward.txt", False),
        ("/var/lib/dpkg/status", False),
        ("/proc/self/mem", False),
        ("/start.sh", False),
    ],
)
def test_the_rule(path: str, is_carried: bool) -> None:
    assert Places("/app", PATH, ("/start.sh",)).is_carried(path) == is_carried


def test_a_link_to_a_package_is_no_way_around_the_names_of_modules() -> None:
    assert not Places("/app", PATH).is_carried("/app/json", "link")
    assert Places("/app", PATH).is_carried("/app/json", "folder")


def test_what_variables_of_the_image_make_programs_read_is_its_own() -> None:
    places = Places("/app", PATH, read=("/opt/modules", "/app/lib", "/opt/start.sh"))
    for path in ("/opt/modules/json.py", "/app/lib/libc.so.6", "/opt/start.sh"):
        assert not places.is_carried(path)
    for path in ("/opt/modules/main.py", "/app/lib/answer.txt", "/opt/other.sh"):
        assert places.is_carried(path)


def test_programs_of_the_image_stay_its_own_wherever_they_are() -> None:
    places = Places("/app", ("/opt/venv/bin", "/app/.venv/bin", "/app/bin", *PATH))
    assert not places.is_carried("/opt/venv/lib/python3.12/site-packages/pytest.py")
    assert not places.is_carried("/app/.venv/lib/x.py")
    assert not places.is_carried("/app/bin/python3")
    assert places.is_carried("/app/src/x.py")
    assert places.is_carried("/opt/other/x")


@pytest.mark.parametrize("workdir", ["/usr/src/app", "/etc/task", "/root"])
def test_a_working_folder_is_carried_wherever_it_is(workdir: str) -> None:
    assert Places(workdir, PATH).is_carried(f"{workdir}/answer.txt")


@pytest.mark.parametrize("workdir", ["/", "/usr", "/etc", "/usr/bin"])
def test_a_working_folder_that_holds_the_system_makes_no_difference(workdir: str) -> None:
    assert not Places(workdir, PATH).is_carried("/usr/bin/bash")
    assert not Places(workdir, PATH).is_carried("/etc/profile")


def test_the_folder_of_the_agent_comes_last_on_the_path_of_the_judge() -> None:
    assert Places("/app", ("/app", ".", "/usr/bin")).judge_path == "/usr/bin:/app:."


@given(path=PATHS, workdir=PATHS)
def test_nothing_is_carried_into_the_programs_or_the_tests(path: str, workdir: str) -> None:
    places = Places(workdir, PATH)
    if places.is_carried(path):
        assert not any(is_below(path, place) for place in ("/tests", "/logs", *PATH))
        assert is_below(path, workdir) or not any(is_below(path, place) for place in ("/etc", "/usr", "/lib"))


@given(target=PATHS)
def test_no_link_leads_to_what_only_the_judge_has(target: str) -> None:
    assert not Places("/app", PATH).may_lead(f"/tests{target}", True)
    assert not Places("/app", PATH).may_lead(f"/tmp{target}", True)

"""The requirement files of servers are read as pip reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ludus_nemo_gym.hosted.packages import provides
from ludus_nemo_gym.hosted.requirements import Requirements, pip_install, read_requirements

from ludus import UserError

pytest.importorskip("packaging", reason="needs packaging: pip install 'ludus-nemo-gym[servers]'")


def read(folder: Path, **files: str) -> Requirements:
    for name, content in files.items():
        (folder / f"{name}.txt").write_text(content)
    return read_requirements(folder.resolve())


def names(requirements: Requirements) -> list[str]:
    return [package.name for package in requirements.wanted]


def test_comments_continued_lines_and_hashes_are_not_part_of_a_requirement(tmp_path: Path) -> None:
    text = "# first\nmath_verify[antlr]>=0.8  # grades\n\nsympy==1.13.1 \\\n    --hash=sha256:abc\n"
    wanted = read(tmp_path, requirements=text).wanted
    assert [str(package) for package in wanted] == ["math_verify[antlr]>=0.8", "sympy==1.13.1"]
    assert [package.where for package in wanted] == ["requirements.txt:2", "requirements.txt:4"]
    assert [package.name for package in wanted] == ["math-verify", "sympy"]


def test_included_files_are_read_once_even_if_they_include_each_other(tmp_path: Path) -> None:
    found = read(tmp_path, requirements="-r more.txt\nnumpy", more="--requirement=requirements.txt\npandas<3")
    assert names(found) == ["pandas", "numpy"]
    assert found.wanted[0].where == "more.txt:2"


def test_a_missing_or_remote_file_is_a_problem_and_not_the_end(tmp_path: Path) -> None:
    found = read(tmp_path, requirements="-r gone.txt\n-r https://example.com/r.txt\nnumpy")
    assert names(found) == ["numpy"]
    assert found.problems == [
        "gone.txt does not exist",
        "requirements.txt:2 includes a file from the network, which is not read",
    ]


def test_an_unreadable_line_is_named_and_never_quoted(tmp_path: Path) -> None:
    found = read(tmp_path, requirements="numpy\nmy password is: hunter2 !!\n")
    assert found.problems == ["requirements.txt:2 is not a requirement"]


@pytest.mark.parametrize(
    "line", ["-e nemo-gym[dev] @ ../../", "nemo_gym", "-e ../..", "nemo-gym @ git+https://example.com/Gym.git"]
)
def test_a_line_for_nemo_gym_itself_is_left_out(tmp_path: Path, line: str) -> None:
    folder = tmp_path / "resources_servers" / "one"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text(f"{line}\nnumpy\n")
    assert names(read_requirements(folder.resolve(), tmp_path.resolve())) == ["numpy"]


def test_a_folder_has_the_name_that_its_project_says(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "pyproject.toml").write_text('[project]\nname = "My_Lib"\n')
    (package,) = read(tmp_path, requirements="-e ./lib").wanted
    assert (package.name, package.arguments) == ("my-lib", ("-e", str(tmp_path / "lib")))


def test_a_package_from_git_keeps_its_url_without_the_password(tmp_path: Path) -> None:
    text = "tau2 @ git+https://me:secret@github.com/a/tau2.git@v1\ngit+https://github.com/a/b.git#egg=bee\n"
    found = read(tmp_path, requirements=text)
    assert names(found) == ["tau2", "bee"]
    assert found.wanted[0].arguments == ("tau2 @ git+https://github.com/a/tau2.git@v1",)


def test_the_index_of_a_file_goes_into_the_command(tmp_path: Path) -> None:
    text = "--extra-index-url https://me:secret@example.com/simple\n--pre\ntorch>=2\n"
    found = read(tmp_path, requirements=text)
    command = pip_install(found.arguments(found.wanted))
    assert command == "pip install --extra-index-url https://example.com/simple --pre 'torch>=2'"


def test_a_marker_for_another_machine_leaves_the_requirement_out(tmp_path: Path) -> None:
    text = "pywin32; sys_platform == 'win32'\nuvloop; python_version >= '3.11'\n"
    assert names(read(tmp_path, requirements=text)) == ["uvloop"]


def test_dependencies_of_a_project_are_requirements_too(tmp_path: Path) -> None:
    text = '[project]\nname = "one"\nrequires-python = ">=3.12"\ndependencies = ["nemo-gym[dev]", "chess>=1.10"]\n'
    (tmp_path / "pyproject.toml").write_text(text)
    found = read(tmp_path)
    assert names(found) == ["chess"]
    assert (found.python, found.wanted[0].where) == (">=3.12", "pyproject.toml")


def test_a_project_file_that_is_not_toml_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")
    with pytest.raises(UserError, match=r"pyproject.toml: not valid TOML"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("package", "module"),
    [("opencv-python", "cv2"), ("pyyaml", "yaml"), ("python-chess", "chess"), ("math-verify", "math_verify.parser")],
)
def test_a_package_is_known_by_its_module(package: str, module: str) -> None:
    assert provides(package, module)


def test_a_version_is_compared_as_pip_compares_it(tmp_path: Path) -> None:
    (package,) = read(tmp_path, requirements="openai>=2.0,<=2.7.2").wanted
    assert package.admits("2.7.2")
    assert package.admits("2.1.0rc1")
    assert not package.admits("2.8")
    assert package.admits("not a version")


@given(text=st.text())
def test_any_text_is_read_without_an_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "requirements.txt").write_bytes(text.encode("utf-8", "surrogatepass"))
    found = read_requirements(folder.resolve())
    assert all(package.arguments for package in found.wanted)

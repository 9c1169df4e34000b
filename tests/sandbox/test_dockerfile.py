"""Which images a Dockerfile is built on is read from its text, and only these names are replaced in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ludus.sandbox.dockerfile import Dockerfile

SEVERAL = """\
# FROM comment
ARG VERSION=24.04
FROM --platform=linux/amd64 ubuntu:${VERSION} AS Build
RUN psql -c "SELECT * \\
# a comment in between
FROM orders"
from python:3.12-slim
COPY --from=build /a /a
COPY --chown=0:0 --from=ghcr.io/tools/uv:latest /uv /bin/
COPY --from=0 /b /b
FROM scratch
FROM build
"""


def test_stages_scratch_comments_and_lines_that_go_on_name_no_image() -> None:
    uses = [(use.line, use.image) for use in Dockerfile(SEVERAL).images]
    assert uses == [(3, "ubuntu:24.04"), (7, "python:3.12-slim"), (9, "ghcr.io/tools/uv:latest")]


def test_only_the_names_are_replaced() -> None:
    text = Dockerfile(SEVERAL).on(lambda image: f"localhost/{image.partition(':')[0]}")
    assert "FROM --platform=linux/amd64 localhost/ubuntu AS Build\n" in text
    assert "COPY --chown=0:0 --from=localhost/ghcr.io/tools/uv /uv /bin/\n" in text
    assert "FROM orders" in text
    assert "COPY --from=build /a /a" in text
    assert text.endswith("FROM scratch\nFROM build\n")


def test_the_line_of_a_step_is_found_however_its_blanks_are_written() -> None:
    text = "FROM a\n\nRUN echo one\nRUN echo two;   \\\n    ls   /x\n"
    assert Dockerfile(text).line_of("RUN echo two;        ls   /x") == 4
    assert Dockerfile(text).line_of("RUN nothing") is None


@given(st.text(alphabet="FROMCOPYARGfrom-=# \\\n$a{}:/\"'1", max_size=200))
def test_any_text_stays_as_it_is_if_no_name_is_replaced(text: str) -> None:
    once = Dockerfile(text).on(lambda image: image)
    assert Dockerfile(once).on(lambda image: image) == once
    assert [use.image for use in Dockerfile(once).images] == [use.image for use in Dockerfile(text).images]

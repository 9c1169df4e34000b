"""A theorem to prove in Coq: the model writes the proof, and the kernel checks it.

Three processes of `coqc` in two sandboxes. The judge's sandbox compiles the statement. The other one gets a copy of it,
compiles the answer and is closed. Then the judge's gets the compiled answer, and checks in a new process that its
theorem has the right type and rests on no axiom. The name of the statement's library is drawn for each verdict, so the
answer cannot define a library of that name.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

from pydantic import Field, PositiveFloat

import ludus
from ludus import Failure, Response, Verdict
from ludus.graders.code_blocks import last_block
from ludus.sandbox import HOME, ExecResult, Sandbox, SandboxLimits, SandboxSpec
from ludus.sandbox.resources import SandboxConfig, SandboxResources
from ludus_lab.needs import require

#: Commands that read or write files, load compiled code, or leave the compiler. No proof needs one.
REFUSED = re.compile(
    r"\b(Load|LoadPath|Redirect|Cd|Pwd|Drop|Quit|BackTo|Extraction|Extract|ML|Native|Register|Debug|Profile|native_compute)\b"
)

#: What `Print Assumptions` prints for a theorem without axioms.
CLOSED = "Closed under the global context"

_OPTIONS = ("-q", "-noglob", "-bytecode-compiler", "no", "-w", "none", "-color", "no")


class Proofs(SandboxResources):
    """No tools: the verifier compiles the last fenced block of the final text."""

    class Task(ludus.Task):
        #: the name that the theorem must have
        name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,60}$")
        #: the theorem
        statement: str
        #: what both files begin with: `Require Import` of the standard library
        imports: str = ""
        #: definitions that the statement uses; the answer's file imports them
        definitions: str = ""

    class Config(SandboxConfig):
        """Settings of the verifier."""

        #: Seconds that the compilation of one answer may take.
        seconds: PositiveFloat = 30.0

    config: Config
    sandbox_spec = SandboxSpec(
        limits=SandboxLimits(memory_mb=2048, disk_mb=64),
        env={"OCAMLFIND_CONF": f"{HOME}/findlib.conf"},  # the sandbox has no /etc/ocamlfind.conf
        files={"findlib.conf": b'path="/usr/lib/ocaml"\ndestdir="/usr/lib/ocaml"\n'},
    )

    @classmethod
    def share(cls, config: Any) -> Any:
        require(__package__)
        return super().share(config)

    async def verify(self, task: Task, response: Response) -> Verdict:
        block = last_block(response.output_text)
        if block is None:
            return _refused("no fenced block")
        if command := REFUSED.search(block.code):
            return _refused(f"the command {command[1]} is not allowed")
        root = f"R{secrets.token_hex(8)}"
        goal = f"{task.imports}\n{task.definitions}\nDefinition statement : Prop := {task.statement}.\n".encode()
        answer = f"{task.imports}\nFrom {root} Require Import Goal.\n{block.code}\n".encode(errors="replace")
        async with await self.shared.open(self.sandbox.spec) as judge:
            stated = await self._compile_goal(judge, root, goal)
            async with await self.shared.open(self.sandbox.spec) as box:
                await box.write("Goal.vo", stated)
                await box.write("Answer.v", answer)
                ended = await self._compile(box, root, "Answer", self.config.seconds)
                compiled = await box.read_if_there("Answer.vo") if ended.ok else None
            if compiled is None:
                return _refused(_problem(ended))
            return await self._check(task, judge, root, compiled)

    async def _check(self, task: Task, judge: Sandbox, root: str, compiled: bytes) -> Verdict:
        """The kernel's word about the compiled answer, in a sandbox where the answer never ran."""
        check = (
            f"Require {root}.Answer.\nRequire {root}.Goal.\n"
            f"Definition checked : {root}.Goal.statement := {root}.Answer.{task.name}.\nPrint Assumptions checked.\n"
        )
        await judge.write("Answer.vo", compiled)
        await judge.write("Check.v", check.encode())
        ended = await self._compile(judge, root, "Check", 2 * self.config.seconds)
        if not ended.ok:
            return _refused(f"it does not prove {task.name}: {_problem(ended)}")
        if ended.text.strip() != CLOSED:
            return _refused(f"the proof rests on more than the kernel: {' '.join(ended.text.split())[:500]}")
        return Verdict(1.0, proved=True, problem=None)

    async def _compile_goal(self, judge: Sandbox, root: str, goal: bytes) -> bytes:
        """The compiled text of the row. An error in it is an error of the row, and no verdict."""
        await judge.write("Goal.v", goal)
        ended = await self._compile(judge, root, "Goal", 60)
        compiled = await judge.read_if_there("Goal.vo") if ended.ok else None
        if compiled is None:
            raise Failure("bad_row", f"the statement does not compile: {_problem(ended)}")
        return compiled

    async def _compile(self, box: Sandbox, root: str, name: str, seconds: float) -> ExecResult:
        return await box.exec(["coqc", *_OPTIONS, "-Q", ".", root, f"{name}.v"], timeout=seconds)


def _refused(problem: str) -> Verdict:
    return Verdict(0.0, proved=False, problem=problem)


def _problem(ended: ExecResult) -> str:
    """How the compiler ended, with the beginning of its message."""
    if ended.exit_code is None:
        return ended.why
    return " ".join((ended.stderr or ended.stdout).decode(errors="replace").split())[:500] or ended.why

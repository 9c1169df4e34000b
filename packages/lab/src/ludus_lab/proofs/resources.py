"""A theorem to prove in Coq: the model writes the proof, and the kernel checks it.

Three processes of `coqc` in two sandboxes. The judge's sandbox compiles the statement. The other one gets a copy of it,
compiles the answer and is closed. Then the judge's gets the compiled answer, and checks in a new process that its
theorem has the right type and rests on no axiom. The name of the statement's library is drawn for each verdict, so the
answer cannot define a library of that name.
"""

from __future__ import annotations

import re
import secrets

from pydantic import Field, PositiveFloat

import ludus
from ludus import Failure, Response, Verdict
from ludus.sandbox import HOME, ExecResult, Sandbox, SandboxLimits, SandboxSpec
from ludus.sandbox.resources import SandboxConfig
from ludus_lab.programs import ProgramResources, problem_of, run_in

#: Commands that read or write files, load compiled code, or leave the compiler. No proof needs one.
REFUSED = re.compile(
    r"\b(Load|LoadPath|Redirect|Cd|Pwd|Drop|Quit|BackTo|Extraction|Extract|ML|Native|Register|Debug|Profile|native_compute)\b"
)

#: What `Print Assumptions` prints for a theorem without axioms.
CLOSED = "Closed under the global context"

_OPTIONS = ("-q", "-noglob", "-bytecode-compiler", "no", "-w", "none", "-color", "no")


class Proofs(ProgramResources):
    """The verifier compiles the proof script."""

    refused = REFUSED

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

    async def verify(self, task: Task, response: Response) -> Verdict:
        script, problem = self.read_program(response)
        if problem is not None:
            return _refused(problem)
        root = f"R{secrets.token_hex(8)}"
        goal = f"{task.imports}\n{task.definitions}\nDefinition statement : Prop := {task.statement}.\n"
        answer = f"{task.imports}\nFrom {root} Require Import Goal.\n{script}\n"
        async with await self.new_box() as judge:
            stated = await self._compile_goal(judge, root, goal)
            async with await self.new_box() as box:
                await box.write("Goal.vo", stated)
                ended = await _compile(box, root, "Answer", answer, self.config.seconds)
                compiled = await box.read_if_there("Answer.vo") if ended.ok else None
            if compiled is None:
                return _refused(problem_of(ended))
            return await self._check(task, judge, root, compiled)

    async def _check(self, task: Task, judge: Sandbox, root: str, compiled: bytes) -> Verdict:
        """The kernel's word about the compiled answer, in a sandbox where the answer never ran."""
        check = (
            f"Require {root}.Answer.\nRequire {root}.Goal.\n"
            f"Definition checked : {root}.Goal.statement := {root}.Answer.{task.name}.\nPrint Assumptions checked.\n"
        )
        await judge.write("Answer.vo", compiled)
        ended = await _compile(judge, root, "Check", check, 2 * self.config.seconds)
        if not ended.ok:
            return _refused(f"it does not prove {task.name}: {problem_of(ended)}")
        if ended.text.strip() != CLOSED:
            return _refused(f"the proof rests on more than the kernel: {' '.join(ended.text.split())[:500]}")
        return Verdict(1.0, proved=True, problem=None)

    async def _compile_goal(self, judge: Sandbox, root: str, goal: str) -> bytes:
        """The compiled text of the row. An error in it is an error of the row, and no verdict."""
        ended = await _compile(judge, root, "Goal", goal, 60)
        compiled = await judge.read_if_there("Goal.vo") if ended.ok else None
        if compiled is None:
            raise Failure("bad_row", f"the statement does not compile: {problem_of(ended)}")
        return compiled


async def _compile(box: Sandbox, root: str, name: str, text: str, seconds: float) -> ExecResult:
    return await run_in(box, {f"{name}.v": text}, ["coqc", *_OPTIONS, "-Q", ".", root, f"{name}.v"], seconds)


def _refused(problem: str) -> Verdict:
    return Verdict(0.0, proved=False, problem=problem)

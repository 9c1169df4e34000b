"""Tasks of Inspect for tests: each sample is called after what its solver or its scorer does."""

from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser, get_model
from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import Generate, TaskState, generate, solver, system_message, use_tools
from inspect_ai.tool import tool
from inspect_ai.util import sandbox

HERE = Path(__file__).parent
VALUES = {
    "right": "C",
    "wrong": "I",
    "partial": "P",
    "no_answer": "N",
    "number": 0.25,
    "truth": True,
    "several": {"utility": 1, "style": 0.5},
    "not_a_number": float("nan"),
    "word": "maybe",
    "list": [1, 0],
}
SAMPLES = [
    *VALUES,
    *("no_score", "grader_failed", "solver_raises", "scorer_raises", "judged", "judge_dead", "judges_itself"),
    *("with_user", "no_user", "limited", "model_fails", "tools", "changed_turn"),
]

BOXED = [
    Sample(id="box", input="right?", files={"given.txt": " and a file"}, sandbox="docker"),
    Sample(id="box_image", input="right?", sandbox=("docker", str(HERE / "compose.yaml"))),
    Sample(id="box_services", input="right?", sandbox=("docker", str(HERE / "services-compose.yaml"))),
]


@tool
def add():
    async def execute(x: int, y: int):
        """Add two numbers.

        Args:
            x: The first.
            y: The second.
        """
        return str(x + y)

    return execute


async def use_sandbox(state: TaskState):
    """Write, run and read in the sandbox of a sample, and note what came of it."""
    box = sandbox()
    await box.write_file("notes/left.txt", "written by the solver")
    ran = await box.exec(["sh", "-c", "cat notes/left.txt given.txt; exit 3"])
    state.metadata["ran"] = [ran.returncode, ran.stdout]
    try:
        await box.exec(["sleep", "60"], timeout=1)
    except TimeoutError:
        state.metadata["late"] = True
    try:
        await box.read_file("missing.txt")
    except FileNotFoundError:
        state.metadata["missing"] = True


@solver
def play():
    async def solve(state: TaskState, generate: Generate):
        kind = state.sample_id
        if kind.startswith("box"):
            await use_sandbox(state)
        if kind == "solver_raises":
            raise ValueError("the solver is broken")
        if kind == "limited":
            state.message_limit = 3
        state = await generate(state)
        if kind == "limited":
            state.messages.append(ChatMessageUser(content="limited, go on"))
            state = await generate(state)
        if kind in ("with_user", "no_user"):
            user = get_model(role="user" if kind == "with_user" else "customer")
            said = await user.generate("with_user: what do you want?")
            state.messages.append(ChatMessageUser(content=said.completion))
            state = await generate(state)
        if kind == "changed_turn":
            state.messages[-1].text = "what I never said"
            state.messages.append(ChatMessageUser(content="changed_turn, again"))
            state = await generate(state)
        return state

    return solve


@scorer(metrics=[accuracy()])
def main():
    async def score(state: TaskState, target):
        kind = state.sample_id
        if kind == "no_score":
            return None
        if kind == "grader_failed":
            return Score(value="I", reason="grader_failed", explanation="no grade in the reply")
        if kind == "scorer_raises":
            raise KeyError("the scorer is broken")
        if kind in ("judged", "judge_dead"):
            try:
                verdict = await get_model(role="grader").generate(f"{kind}: is it right?")
            except Exception:
                return Score(value=0)
            return Score(value=verdict.completion, answer=state.output.completion)
        if kind == "judges_itself":
            return Score(value=(await get_model().generate("judges_itself: is it right?")).completion)
        if kind.startswith("box"):
            text = await sandbox().read_file("notes/left.txt")
            return Score(value=int(text == "written by the solver"), explanation=str(state.metadata))
        return Score(value=VALUES.get(kind, "C"), answer=state.output.completion)

    return score


@scorer(metrics=[accuracy()])
def length():
    async def score(state: TaskState, target):
        return Score(value=len(state.output.completion))

    return score


@task
def behaviours(greeting: str = "Be brief."):
    return Task(
        dataset=[Sample(id=name, input=f"{name}?", target="yes") for name in SAMPLES] + BOXED,
        solver=[system_message(greeting), use_tools(add()), play()],
        scorer=[main(), length()],
    )


@task
def sums(count: int = 200):
    return Task(dataset=[Sample(input=f"{n}?", target="4") for n in range(count)], solver=generate(), scorer=length())

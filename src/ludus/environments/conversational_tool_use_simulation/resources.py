"""A simulated service desk: one model plays the customer, one plays the tools, and one judges.

The policy model sees a written policy, tools and a customer. A call that does not fit its tool's schema ends the
conversation with reward 0. If the simulated customer or tools fail, the rollout is masked: the policy did not cause it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import PositiveInt

from ludus import Failure, Resources, Response, Verdict
from ludus.agents.conversation import Ending
from ludus.agents.user import STOP, TRANSFER, UserRole
from ludus.environments.conversational_tool_use_simulation.checking import problem_with
from ludus.environments.conversational_tool_use_simulation.endings import recorded_ending
from ludus.environments.conversational_tool_use_simulation.faults import (
    BAD_CALL,
    BAD_RESULT,
    NO_VERDICT,
    judged,
    unfinished,
    verdict,
)
from ludus.environments.conversational_tool_use_simulation.judging import Examiner, Unreadable
from ludus.environments.conversational_tool_use_simulation.rows import ConversationTask
from ludus.environments.conversational_tool_use_simulation.steps import Step, steps_of
from ludus.environments.conversational_tool_use_simulation.tool_simulator import ToolSimulator
from ludus.graders.judge import NAME_A_JUDGE, Judge, JudgeModelConfig, open_judge
from ludus.model import Model
from ludus.models import open_model
from ludus.response import Item
from ludus.tools import error_text

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "max_output_tokens": 8192}
NO_JUDGE = (
    f"these rows need a judge. Name a model with: {NAME_A_JUDGE}. Or reward every conversation that the customer ends:"
    ' --set resources.enable_llm_judge=false, in Python settings={"resources.enable_llm_judge": False}'
)

NO_ENDING = (
    "the record does not show how the conversation ended: it has neither response.metadata.conversation nor the"
    " customer's closing turn in result.trajectory"
)


@dataclass
class Shared:
    """The models that all conversations share."""

    simulator: Model | None
    judge: Judge | None


class Simulation(Resources):
    """One conversation. The row defines its tools. The verdict depends on the response alone."""

    Task: ClassVar[type[ConversationTask]] = ConversationTask
    judged_by_response = True

    class Config(JudgeModelConfig):
        """Settings of the simulation."""

        #: The model that plays the tools, as on the command line. Without a model, every result is a fixed text.
        simulator: str | None = None

        #: Settings of the simulator, and parameters of each request to it.
        simulator_settings: dict[str, Any] = {}
        simulator_responses_create_params: dict[str, Any] = SAMPLING
        judge_responses_create_params: dict[str, Any] = SAMPLING

        #: How many attempts the simulator or the judge has to give a usable answer.
        generation_attempts: PositiveInt = 3

        #: Whether to ask a judge. If false, every conversation that the customer ends earns 1.
        enable_llm_judge: bool = True

        #: Judge every step and then the whole, or customer, tools and representative with one question.
        judge_mode: Literal["message", "complete_trajectory_combined_evaluation"] = "message"

        #: Stop judging at the first step that fails.
        enable_termination: bool = True

        #: Give reward 0 if the customer was transferred against `outside_policy_scope`, or not transferred despite it.
        enforce_transfer_ground_truth: bool = False

    config: Config
    shared: Shared

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Shared]:
        async with AsyncExitStack() as stack:
            judge = await stack.enter_async_context(open_judge(config))
            simulator = None
            if config.simulator is not None:
                simulator = await stack.enter_async_context(open_model(config.simulator, config.simulator_settings))
            yield Shared(simulator, judge)

    async def open(self, task: ConversationTask) -> None:
        self._judge()
        config = self.config
        self.simulator = ToolSimulator(
            task,
            self.shared.simulator,
            config.simulator_responses_create_params,
            config.generation_attempts,
            self.seed,
        )
        self.arguments = {tool.name: tool.arguments for tool in task.definitions}
        self.items: list[Item] = []
        self.seen = len(task.input)
        self.call_ids = {str(item.get("call_id")) for item in task.input}
        self.ended: str | None = None
        self.one_call = asyncio.Lock()

    def fork(self) -> Self:
        """A second session in the same state. Both use the same shared models."""
        twin = type(self)(self.config, self.shared)
        vars(twin).update(vars(self))
        twin.simulator, twin.one_call = self.simulator.copy(), asyncio.Lock()
        twin.items, twin.call_ids = list(self.items), set(self.call_ids)
        return twin

    def user(self, task: ConversationTask) -> UserRole:
        """The customer of the row."""
        scenario = task.customer_scenario
        return UserRole(
            persona=scenario.customer_persona,
            goal=scenario.reason_for_contact,
            facts={"details": scenario.customer_details} if scenario.customer_details else {},
            instructions=scenario.task_instructions,
            unknown=scenario.unknown_info or "",
            company=f"A representative of: {scenario.representative_domain or task.domain_name}",
            opening=task.initial_user_message,
            markers=(STOP, TRANSFER),
        )

    async def follow(self, items: list[Item]) -> str | None:
        """Check new calls before they run. A wrong call ends the conversation."""
        self.items = items
        for item in items[self.seen :]:
            if item.get("type") == "function_call" and self.ended is None and await self._is_wrong(item):
                self.ended = BAD_CALL
        self.seen = len(items)
        return self.ended

    async def call(self, name: str, arguments: str) -> str:
        async with self.one_call:  # the simulator must see all earlier results
            result = await self.simulator.run(self.items, name, arguments) if self.ended is None else None
        if result is None:
            self.ended = self.ended or BAD_RESULT
            return error_text("the tool gave no result")
        return result

    async def _is_wrong(self, call: Item) -> bool:
        known, repeated = call["name"] in self.arguments, call["call_id"] in self.call_ids
        self.call_ids.add(call["call_id"])
        return (
            repeated
            or not known
            or await problem_with(call["arguments"] or "{}", self.arguments[call["name"]]) is not None
        )

    async def verify(self, task: ConversationTask, response: Response) -> Verdict:
        judge, config = self._judge(), self.config
        ending = recorded_ending(task, response)
        if ending is None:
            raise Failure("bad_row", NO_ENDING)
        steps = steps_of(task, response, ending)
        values = self._values(task, steps, ending)
        if not ending.by_user:
            return unfinished(ending.reason, values, compat=config.compat)
        if config.enforce_transfer_ground_truth and values["transfer_mismatch"]:
            return verdict(0.0, values, ["agent_failure"], [])
        if judge is None:
            return verdict(1.0, values, [], [])
        examiner = Examiner(judge, task, steps, config.generation_attempts)
        try:
            by_step = config.judge_mode == "message"
            findings = await (examiner.by_step(config.enable_termination) if by_step else examiner.in_one_question())
        except Unreadable:
            if config.compat:
                return verdict(0.0, values, [NO_VERDICT], [NO_VERDICT])
            raise Failure("judge", f"none of the judge's {config.generation_attempts} replies held a verdict") from None
        return judged(findings, {**values, "judge_usage": examiner.usage})

    def _judge(self) -> Judge | None:
        """The judge; None if conversations are rewarded without one."""
        if not self.config.enable_llm_judge:
            return None
        if self.shared.judge is None and not self.config.compat:
            raise Failure("no_judge", NO_JUDGE)
        return self.shared.judge

    def _values(self, task: ConversationTask, steps: list[Step], ending: Ending) -> dict[str, Any]:
        kinds = Counter(f"{step.source}_{step.type}" for step in steps if not step.in_prompt)
        transferred = TRANSFER in ending.closing
        expected = task.customer_scenario.outside_policy_scope
        return {
            "terminal_state": "complete" if ending.by_user else "incomplete",
            "transferred": transferred,
            "transfer_expected": expected,
            "transfer_mismatch": transferred != expected,
            "schema_failure": ending.reason in (BAD_CALL, BAD_RESULT),
            "user_messages": kinds["user_text"],
            "agent_messages": kinds["agent_text"],
            "agent_tool_calls": kinds["agent_tool_call"],
            "tool_results": kinds["environment_tool_execution"],
        }

"""The agents of a configuration become agents of Ludus, with the settings of their environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from launches import MCQA, OPENAI, POLICY, foreign, instance, launched
from ludus_nemo_gym.launch import AgentPart, Launch
from ludus_nemo_gym.starting import plan_of

from ludus import UserError
from ludus.agents.conversation import ConversationAgent
from ludus.agents.gymnasium import GymnasiumAgent
from ludus.agents.single_turn import SingleTurnAgent
from ludus.environment import Environment
from ludus.serve.plan import Server

CONVERSATION = """
conversational_tool_use_simulation:
  resources_servers:
    conversational_tool_use_simulation:
      allowed_agents: [conversational_tool_use/simulation]
      entrypoint: app.py
      domain: agent
      simulator_model_server: {type: responses_api_models, name: policy_model}
      user_model_server: {type: responses_api_models, name: user_model}
      tool_simulator_model_server: {type: responses_api_models, name: tool_model}
      judge_model_server: {type: responses_api_models, name: policy_model}
      user_responses_create_params: {input: [], temperature: 0.5}
      tool_simulator_responses_create_params: {input: [], temperature: 0.25}
      verification_type: complete_trajectory_combined_evaluation
conversational_tool_use_agent:
  responses_api_agents:
    conversational_tool_use/simulation:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: conversational_tool_use_simulation}
      model_server: {type: responses_api_models, name: policy_model}
      max_agent_steps: 7
      seed_first_user_message: false
user_model: {responses_api_models: {vllm_model: {base_url: http://u/v1, api_key: none, model: u}}}
tool_model: {responses_api_models: {vllm_model: {base_url: http://t/v1, api_key: none, model: t}}}
"""


@pytest.fixture(autouse=True)
def _in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_max_steps_comes_from_the_environment_unless_the_configuration_sets_it():
    block = {"resources_server": {"type": "resources_servers", "name": "mcqa"}}
    block["model_server"] = {"type": "responses_api_models", "name": "policy_model"}
    tree = {
        "plain": {"responses_api_agents": {"simple_agent": {**block, "max_steps": None}}},
        "long": {"responses_api_agents": {"simple_agent": {**block, "max_steps": 9}}},
        "once": {"responses_api_agents": {"tool_simulation_agent": block}},
    }
    launch = launched(f"+config_paths=[{MCQA},{OPENAI}]", *POLICY, tree=tree)
    parts = {name: instance(launch, name).part for name in tree}
    assert parts["plain"] == AgentPart("simple", {"max_steps": 1}, "mcqa", "policy_model")
    assert parts["long"] == AgentPart("simple", {"max_steps": 9}, "mcqa", "policy_model")
    assert parts["once"] == AgentPart("single_turn", {}, "mcqa", "policy_model")
    served = {server.name: server.settings for server in plan_of(launch).servers}
    assert served["once"]["agent.type"] == "single_turn"
    once = Environment.load("mcqa").copy()
    once.configure(served["once"])
    assert isinstance(once.agent, SingleTurnAgent)
    assert launch.notes == []


def test_an_agent_without_resources_or_without_verification_is_refused():
    agent = "mcqa_simple_agent.responses_api_agents.simple_agent"
    with pytest.raises(UserError, match="mcqa_simple_agent has no resources_server"):
        launched(f"+config_paths=[{MCQA},{OPENAI}]", *POLICY, f"++{agent}.resources_server=null")
    with pytest.raises(UserError, match="skip_verification would invent rewards"):
        launched(f"+config_paths=[{MCQA},{OPENAI}]", *POLICY, f"++{agent}.skip_verification=true")


def agent_of(launch: Launch, name: str) -> tuple[Environment, Server]:
    """The environment that a planned agent server plays, and the server."""
    server = next(each for each in plan_of(launch).servers if each.name == name)
    environment = Environment.load(str(server.environment)).copy()
    environment.configure(server.settings)
    return environment, server


def test_a_conversation_gets_its_user_its_tools_and_its_steps_from_the_configuration(tmp_path: Path):
    (tmp_path / "theirs.yaml").write_text(CONVERSATION)
    launch = launched(f"+config_paths=[theirs.yaml,{OPENAI}]", *POLICY)
    environment, _ = agent_of(launch, "conversational_tool_use_agent")
    assert launch.notes == []
    agent, config = environment.agent, environment.config.model_dump()
    assert isinstance(agent, ConversationAgent)
    assert (agent.config.max_steps, agent.config.user_starts) == (7, False)
    assert agent.config.user_responses_create_params == {"temperature": 0.5}
    assert isinstance(agent.config.user, dict)
    assert (agent.config.user["type"], agent.config.user["model"]) == ("vllm", "u")
    assert (config["simulator"], config["simulator_settings"]["model"]) == ("vllm", "t")
    assert config["simulator_responses_create_params"] == {"temperature": 0.25}
    assert config["judge_mode"] == "complete_trajectory_combined_evaluation"


def remote_agent(**fields: Any) -> dict[str, Any]:
    block = {"entrypoint": "app.py", "resources_server": {"type": "resources_servers", "name": "mcqa"}, **fields}
    return {"remote_agent": {"responses_api_agents": {"remote_agent": block}}}


def test_a_remote_agent_is_the_tool_loop_around_a_service():
    tree = remote_agent(
        agent_base_url="http://h:1/", remote_responses_timeout_secs=90.0, run_timeout_secs=100.0, max_steps=4
    )
    launch = launched("+config_paths=[resources_servers/mcqa/configs/resources_only.yaml]", tree=tree)
    environment, server = agent_of(launch, "remote_agent")
    assert (environment.limits.model, environment.limits.rollout) == (90.0, 100.0)
    assert environment.agent.config.model_dump()["max_steps"] == 4
    service = next(each for each in plan_of(launch).servers if each.name == server.model)
    assert service.spec == {"type": "remote", "base_url": "http://h:1/v1"}
    assert launch.notes == []


def test_a_remote_agent_without_a_service_is_refused():
    for wrong in (None, "h:1", 7):
        tree = remote_agent(agent_base_url=wrong)
        with pytest.raises(UserError, match=r"agent_base_url is not a URL\. Set it with: '\+\+remote_agent.*HOST:PO"):
            launched("+config_paths=[resources_servers/mcqa/configs/resources_only.yaml]", tree=tree)


@pytest.mark.parametrize(
    ("implementation", "kind"),
    [("gymnasium_agent", GymnasiumAgent), ("non_executing_simple_agent", SingleTurnAgent)],
)
def test_the_named_agent_plays_a_foreign_resources_server(implementation: str, kind: type):
    block = {"resources_server": {"type": "resources_servers", "name": "theirs"}}
    block["model_server"] = {"type": "responses_api_models", "name": "policy_model"}
    tree = {**foreign(url="http://h:1"), "agent": {"responses_api_agents": {implementation: block}}}
    launch = launched(f"+config_paths=[{OPENAI}]", *POLICY, tree=tree)
    environment, server = agent_of(launch, "agent")
    assert isinstance(environment.agent, kind)
    assert server.resources == "http://h:1"

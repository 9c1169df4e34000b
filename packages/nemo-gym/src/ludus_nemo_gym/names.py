"""NeMo Gym's names, and the names that Ludus has for the same things."""

from __future__ import annotations

RESOURCES, AGENTS, MODELS = KINDS = ("resources_servers", "responses_api_agents", "responses_api_models")

#: Servers between the collector and agents. Ludus sends rows to agents, so it starts none of them.
ENVIRONMENTS = "environment_servers"
#: The environment server that only passes requests on.
RELAY = "legacy_agent"

HEAD_SERVER = "head_server"

#: The key that makes a server's own code run where Ludus has an environment of the same name.
PREFER_OWN_CODE = "prefer_own_code"
#: The key that runs own code in Ludus's process, if it is false.
ISOLATE_OWN_CODE = "isolate_own_code"

#: The key in a server's block that says: requests may have the id of their rollout in front of their path.
ROLLOUTS_IN_PATHS = "rollouts_in_paths"

#: The model servers of an agent that are the policy: by the field that refers to them, and by name.
POLICY_FIELDS, POLICY_SERVER = ("model_server", "policy_model_server"), "policy_model"

#: Each kind's name in a sentence.
KIND_NAMES = {RESOURCES: "resources server", AGENTS: "agent", MODELS: "model server"}

#: Ludus's agent for each of NeMo Gym's implementations. A configuration may also name Ludus's agents directly.
AGENT_TYPES = {
    "simple_agent": "simple",
    "tool_simulation_agent": "single_turn",
    "non_executing_simple_agent": "single_turn",
    "gymnasium_agent": "gymnasium",
    "conversational_tool_use": "conversation",
    "conversational_tool_use/simulation": "conversation",
    "remote_agent": "simple",
}

#: The names that Ludus has for settings of an agent.
AGENT_SETTINGS = {
    "conversation": {"max_agent_steps": "max_steps", "seed_first_user_message": "user_starts"},
}

#: The names that Ludus has for settings of an environment. Of two settings with one name the later one wins.
RESOURCES_SETTINGS = {
    "conversational_tool_use_simulation": {
        "tool_simulator_model_server": "simulator_model_server",
        "tool_simulator_responses_create_params": "simulator_responses_create_params",
        "verification_type": "judge_mode",
    },
}

DOMAINS = set(
    "math coding agent knowledge instruction_following long_context safety games translation e2e rlhf other".split()
)
DOMAIN_OF = {"mathematics": "math"}
LICENCE_OF = {"Apache-2.0": "Apache 2.0", "CC-BY-4.0": "Creative Commons Attribution 4.0 International"}
DATASET_TYPES = ("train", "validation", "example", "benchmark")

#: A server's fields that describe the server. All other fields are settings of its environment, agent or model.
SERVER_FIELDS = set(
    "entrypoint host port url num_workers domain description value verified verified_url datasets "
    "allowed_agents allowed_model_types".split()
)

#: Settings that name a folder of a checkout, by environment: the setting, and the files that mark the folder.
FOLDER_SETTINGS = {
    "workplace_assistant": ("tables", ("emails.csv", "processed/emails.csv", "csv_data/processed/emails.csv")),
}

#: Top-level keys of a configuration that are not servers.
GLOBAL_KEYS = set(
    "config_paths policy_base_url policy_api_key policy_model_name default_host use_absolute_ip port_range_low "
    "port_range_high head_server ray_head_node_address skip_venv_if_present uv_cache_dir uv_venv_dir uv_pip_set_python "
    "pip_install_verbose dry_run results_dir cache_dir nemo_gym_log_dir model_endpoint_readiness_timeout_seconds "
    "uvicorn_timeout_worker_healthcheck error_on_almost_servers allow_openai_version_skew observability_enabled "
    "model_call_capture_dir token_id_capture skip_verification skip_verification_reward profiling_enabled "
    "uvicorn_logging_show_200_ok global_aiohttp_connector_limit global_aiohttp_connector_limit_per_host "
    "global_aiohttp_client_request_debug hf_token environment_routing_mode environment_server_name "
    "environment_server_routes error_on_agent_without_environment_server allow_unsupported_pairing telemetry "
    "prefer_own_code isolate_own_code".split()
)
GLOBAL_PREFIXES = ("wandb_", "mlflow_", "global_aiohttp_")

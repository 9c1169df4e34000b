"""Every name that servers, agents and their tests import from `nemo_gym` exists."""

import importlib

import pytest

#: The names by module, as the code of authors imports them.
NAMES = {
    "nemo_gym": """
        CACHE_DIR PARENT_DIR RESULTS_DIR ROOT_DIR WORKING_DIR __version__ __package_name__ component_search_roots
        _resolve_under_cwd_or_install BaseResourcesServerConfig SimpleResourcesServer BaseRunRequest BaseVerifyRequest
        BaseVerifyResponse BaseMultiRewardVerifyResponse BaseSeedSessionRequest BaseSeedSessionResponse ReverifyMode
        BaseResponsesAPIAgentConfig SimpleResponsesAPIAgent BaseResponsesAPIModelConfig SimpleResponsesAPIModel
        ServerClient raise_for_status get_response_json SESSION_ID_KEY BaseServerConfig BaseRunServerInstanceConfig
        Domain AggregateMetrics AggregateMetricsRequest ModelServerRef NeMoGymAsyncOpenAI NeMoGymResponse
        NeMoGymResponseCreateParamsNonStreaming NeMoGymChatCompletion NeMoGymChatCompletionCreateParamsNonStreaming
    """,
    "nemo_gym.config_types": """
        ModelServerRef ResourcesServerRef AgentServerRef EnvironmentServerRef BaseServerConfig BaseRunServerConfig
        BaseRunServerInstanceConfig AggregateMetricsRequest AggregateMetrics Domain ROLLOUT_PATH_PREFIX
        TOKEN_CAPTURE_PATH_SEGMENT OmegaConf ConfigError DatasetConfig AgentWithoutEnvironmentServerError
        AmbiguousEnvironmentServerError AmbiguousAgentRenameError AgentCompositionError UnsupportedAgentPairingError
        UnsupportedModelPairingError UnsupportedAgentOverrideError
    """,
    "nemo_gym.base_resources_server": """
        BaseResourcesServerConfig BaseResourcesServer SimpleResourcesServer BaseRunRequest BaseVerifyRequest
        BaseVerifyResponse BaseMultiRewardVerifyResponse BaseSeedSessionRequest BaseSeedSessionResponse
        MCPServerMetadata ReverifyMode NEMO_GYM_MCP_SESSION_TOKEN_HEADER NEMO_GYM_MCP_METADATA_KEY
        RESERVED_MCP_TOOL_NAMES AggregateMetrics AggregateMetricsRequest NeMoGymResponse
        NeMoGymResponseCreateParamsNonStreaming BaseServer SimpleServer BaseRunServerInstanceConfig
        normalize_tool_name ResourcesSeedSessionRequest ResourcesSeedSessionResponse ResourcesCloseSessionRequest
        ResourcesCloseSessionResponse ResourcesVerifyRequest
    """,
    "nemo_gym.server_utils": """
        ServerClient request raise_for_status get_response_json get_server_url get_first_server_config_dict
        get_global_aiohttp_client is_global_aiohttp_client_request_debug_enabled is_nemo_gym_fastapi_entrypoint
        rollout_path_prefix apply_rollout_prefix setup_server_client initialize_ray SESSION_ID_KEY HEAD_SERVER_KEY_NAME
        DEFAULT_HEAD_SERVER_PORT MAX_NUM_TRIES BaseServer SimpleServer BaseServerConfig
    """,
    "nemo_gym.openai_utils": """
        NeMoGymEasyInputMessage NeMoGymMessage NeMoGymResponseOutputMessage NeMoGymResponseOutputText
        NeMoGymResponseOutputRefusal NeMoGymResponseFunctionToolCall NeMoGymFunctionCallOutput
        NeMoGymResponseFunctionCallOutput NeMoGymResponseReasoningItem NeMoGymSummary NeMoGymResponseInputText
        NeMoGymResponseOutputMessageForTraining NeMoGymResponseFunctionToolCallForTraining TokenIDLogProbMixin
        REQUIRED_TOKEN_METADATA_FIELDS TOKEN_METADATA_FIELDS NeMoGymResponseInputItem NeMoGymResponseOutputItem
        NeMoGymResponseInput NeMoGymResponseCreateParamsNonStreaming NeMoGymResponse NeMoGymResponseUsage
        NeMoGymResponseInputTokensDetails NeMoGymResponseOutputTokensDetails accumulate_response_usage
        NeMoGymChatCompletionCreateParamsNonStreaming NeMoGymChatCompletion NeMoGymChoice NeMoGymChatCompletionMessage
        NeMoGymChatCompletionMessageForTraining NeMoGymChatCompletionMessageToolCall NeMoGymFunction
        NeMoGymChatCompletionUserMessageParam NeMoGymChatCompletionSystemMessageParam
        NeMoGymChatCompletionDeveloperMessageParam NeMoGymChatCompletionAssistantMessageParam
        NeMoGymChatCompletionToolMessageParam NeMoGymChatCompletionMessageParam
        NeMoGymChatCompletionContentPartTextParam NeMoGymChatCompletionToolParam NeMoGymFunctionToolParam
        NeMoGymChatCompletionAssistantMessageForTrainingParam NeMoGymChatCompletionMessageToolCallFunctionParam
        NeMoGymChatCompletionMessageToolCallParam NeMoGymAsyncOpenAI RETRY_ERROR_CODES RATE_LIMIT_ERROR_CODES
        PermanentEndpointError RESPONSES_TO_TRAIN
    """,
    "nemo_gym.base_responses_api_agent": """
        BaseResponsesAPIAgentConfig SimpleResponsesAPIAgent Body AggregateMetricsRequest AgentSeedSessionRequest
        AgentSeedSessionResponse AgentCloseSessionRequest AgentCloseSessionResponse AgentSessionState
        AgentSessionSetupError AGENT_SESSION_COOKIE_KEY
    """,
    "nemo_gym.base_responses_api_model": """
        BaseResponsesAPIModelConfig SimpleResponsesAPIModel Body ModelCallRecord CaptureStore read_model_call_records
        aggregate_model_call_metrics merge_model_call_capture_into_record observability_enabled_from_config
        ModelCallCaptureConfig install_model_call_capture _CaptureMiddleware
    """,
    "nemo_gym.base_environment_server": """
        BaseEnvironmentServerConfig BaseEnvironmentServer HandledEpisodeError CleanupContext CleanupHandle
    """,
    "nemo_gym.judge": "JudgeError reraise_judge_errors call_judge judge_failsafe",
    "nemo_gym.reward_profile": """
        AggregateMetricsMixin compute_aggregate_metrics compute_pass_majority_metrics compute_subset_metrics
        highest_k_metrics add_avg_sample_std_dev RewardProfiler
    """,
    "nemo_gym.global_config": """
        get_global_config_dict maybe_get_global_config_dict get_first_server_config_dict find_open_port get_hf_token
        GlobalConfigDictParser GlobalConfigDictParserConfig DictConfig OmegaConf TASK_INDEX_KEY_NAME
        ROLLOUT_INDEX_KEY_NAME ATTEMPT_INDEX_KEY_NAME ROLLOUT_ID_KEY_NAME AGENT_REF_KEY_NAME SKILLS_REF_KEY_NAME
        TASK_SOURCE_KEY_NAME HF_TOKEN_KEY_NAME CACHE_DIR_KEY_NAME RESULTS_DIR_KEY_NAME DISALLOWED_PORTS_KEY_NAME
        NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME HEAD_SERVER_KEY_NAME
        OBSERVABILITY_ENABLED_KEY_NAME TOKEN_ID_CAPTURE_BLOCK POLICY_BASE_URL_KEY_NAME POLICY_API_KEY_KEY_NAME
        POLICY_MODEL_NAME_KEY_NAME
    """,
    "nemo_gym.prompt": "PromptConfig load_prompt_config fill_prompt apply_prompt_to_row",
    "nemo_gym.path_utils": "failures_path_for aggregate_metrics_path_for materialized_path_for",
    "nemo_gym.rollout_collection": """
        NG_FAILURE_CLASS_KEY NG_NO_PERSIST_KEY NG_TERMINAL_KEY RolloutCollectionHelper RolloutCollectionConfig
        _get_max_rollout_attempts get_max_rollout_attempts is_terminal_failure observed_elapsed DispatchLatencyTracker
        migrate_invalid_judge_main_rows _attach_trajectory_record _build_trajectory_record
        _environment_servers_by_agent _environment_server_for_agent _episode_record _trajectory_identity
        get_global_config_dict
    """,
    "nemo_gym.skills": "stage_skills",
    "nemo_gym.responses_converter": """
        ResponsesConverter VLLMConverter ResponsesConverterState VLLMConverterResponsesToChatCompletionsState
        split_responses_input_output_items _usage_detail uuid4
    """,
    "nemo_gym.rollout_observability": """
        ModelCallRef AgentInvocation ToolCallObservation ContextCompactionObservation SandboxObservation
        ObservationGap AgentObservationBundle AgentEpisode TrajectoryTurn TrajectoryToolCall TrajectoryRecord
        join_model_call_observations
    """,
    "nemo_gym.rollout_correlation": """
        RolloutContextMiddleware rollout_context current_rollout_id maybe_rollout_id_from_run_body
    """,
    "nemo_gym.rollout_health": "run_health_checks",
    "nemo_gym.episode_types": """
        EpisodeId TaskId EpisodeFailure MaterializedTask BaseEpisodeRequest BaseEpisodeResponse
        is_materialized_task_row
    """,
    "nemo_gym.failure_kinds": """
        TRANSPORT_UNREACHABLE TRANSPORT_PEER_DROP TRANSPORT_TIMEOUT TRANSPORT_LOCAL_RESOURCE AGENT_RUN_ERROR
        AGENT_REQUEST_FAILED AGENT_TIMEOUT AGENT_COMMAND_NOT_ALLOWED JUDGE_FAILED JUDGE_UNPARSEABLE VERIFIER_ERROR
        PROVIDER_UNAVAILABLE PROVIDER_QUOTA_EXHAUSTED PROVIDER_OOM_KILLED SESSION_LOST SESSION_EXPIRED
        SESSION_RELEASE_FAILED CANCELLED KILL_SHAPED SHUTDOWN PERSISTENCE_FAILED COHORT_INCOMPLETE FAILURE_KINDS
        FailureStage is_registered is_namespaced validate_failure_kind
    """,
    "nemo_gym.rollout_outcomes": "RolloutFailure",
    "nemo_gym.single_agent_turn_types": """
        SingleAgentTurnTaskInput SingleAgentTurnResult SingleAgentTurnFailure SingleAgentTurnRequest
        SingleAgentTurnResponse
    """,
    "nemo_gym.tool_access": "DirectHTTPToolAccess MCPToolAccess MCPStreamableHTTPConnection ToolAccess",
    "nemo_gym.task_data": """
        load_task_data_schema find_server_dir normalize_task_fields RESERVED_ROW_KEYS TaskDataValidator
        TaskDataSchemaError validate_jsonl_rows
    """,
    "nemo_gym.task_materialization": "materialize_task",
    "nemo_gym.verifier_fixture": """
        VerifierFixture VerifierFixtureResult VerifierFixtureError exercise_verifier_fixture
    """,
    "nemo_gym.testing.session_conformance": "check_resources_session_contract",
    "nemo_gym.deliverables": "IGNORE_FILES is_deliverable",
    "nemo_gym.mcp_auto_exposure": "maybe_auto_expose",
    "nemo_gym.profiling": "Profiler",
    "nemo_gym.benchmarks": "BenchmarkConfig",
    "nemo_gym.vision_input": "build_image_input",
    "nemo_gym.telemetry": "connection_pool",
    "nemo_gym.token_id_capture": "LineageResolver InMemoryLineageStore FileLineageStore ParentResolutionStatus",
    "nemo_gym.sandbox": """
        SandboxSpec SandboxResources AsyncSandbox Sandbox SandboxExecResult SandboxHandle SandboxStatus SandboxEndpoint
        SandboxCreateError resolve_provider_config resolve_provider_metadata register_provider list_providers
        get_provider_class create_provider rewrite_image AsyncSandboxCompose ConnectableProvider
        SupportsSandboxEndpoint
    """,
    "nemo_gym.sandbox.config": "resolve_provider_config resolve_provider_metadata",
    "nemo_gym.sandbox.utils": "rewrite_image cpu_cap_env CPU_CAP_ENV_VARS",
    "nemo_gym.sandbox.access": "SandboxAccess DirectSandboxConnection",
    "nemo_gym.sandbox.agent_tools": """
        sandbox_server_url restricted_network_policy seed_mcp_servers verify_agent_response
    """,
    "nemo_gym.sandbox.process_supervisor": "exec_timeout",
    "nemo_gym.sandbox.providers": "create_provider",
    "nemo_gym.sandbox.providers.registry": "create_provider",
    "nemo_gym.sandbox.providers.base": "SandboxCreateError SandboxExecResult",
    "nemo_gym.sandbox.providers.apptainer": "ApptainerProvider provider",
    "nemo_gym.sandbox.providers.local": "LocalProvider",
    "nemo_gym.sandbox.providers.docker": "DockerProvider DockerCreateConfig",
    "nemo_gym.cli": "RunHelper GlobalConfigDictParserConfig RolloutCollectionHelper",
}


@pytest.mark.parametrize("module", NAMES)
def test_a_module_has_every_name_that_authors_import(module):
    pytest.importorskip("fastapi", reason="servers need the extra `servers`")
    imported = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(imported, name)] == []


def test_the_collections_have_a_newer_address():
    newer = importlib.import_module("nemo_gym.rollouts.rollout_collection")
    assert newer is importlib.import_module("nemo_gym.rollout_collection")


@pytest.mark.parametrize("module", NAMES)
def test_a_star_import_finds_every_name_that_a_module_promises(module):
    pytest.importorskip("fastapi", reason="servers need the extra `servers`")
    imported = importlib.import_module(module)
    assert [name for name in getattr(imported, "__all__", ()) if not hasattr(imported, name)] == []

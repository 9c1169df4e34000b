"""Runs `inspect eval` for some samples of a task with scripted models: `PYTHON inspect_program.py TASK IDS ROLES`.

Prints the scores of each sample as JSON.
"""

import json
import sys
import tempfile

from inspect_ai import eval as inspect_eval
from inspect_ai.model import ChatMessageAssistant, ModelOutput, ModelUsage, get_model
from inspect_ai.util._display import init_display_type
from scripted_minds import decide


def answer(input, tools, tool_choice, config):
    """What the scripted model says."""
    turns = sum(isinstance(message, ChatMessageAssistant) for message in input)
    texts = [message.text for message in input if message.role in ("system", "user")]
    call, text = decide(texts, turns, [tool.name for tool in tools])
    output = ModelOutput.from_content("mockllm/model", text)
    if call:
        output = ModelOutput.for_tool_call("mockllm/model", call, {}, tool_call_id=f"call_{turns}")
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else they are counted with a download
    return output


def main() -> None:
    """Play and print."""
    task, ids, roles, limit = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]), json.loads(sys.argv[4])
    init_display_type("none")
    model = get_model("mockllm/model", custom_outputs=answer)
    with tempfile.TemporaryDirectory() as folder:
        (log,) = inspect_eval(
            task, model=model, model_roles=dict.fromkeys(roles, model), sample_id=ids, log_dir=folder,
            fail_on_error=False, message_limit=limit,
        )  # fmt: skip
        samples = list(log.samples)  # read from the folder
    scores = {str(one.id): {name: score.value for name, score in (one.scores or {}).items()} for one in samples}
    errors = [one.error.message for one in samples if one.error is not None]
    print(json.dumps({"error": log.error.message if log.error else "; ".join(errors), "scores": scores}))


if __name__ == "__main__":
    main()

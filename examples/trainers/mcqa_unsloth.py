"""The reward function of Unsloth's notebooks, against `ludus serve mcqa`.

ludus serve mcqa &
python examples/trainers/mcqa_unsloth.py          # judges one right and one wrong answer

For several turns and exact tokens, pass `TrlRollouts` to Unsloth's GRPOTrainer, which is TRL's (docs/training.md).
"""

import json
import urllib.request

import yaml

HEAD = "http://127.0.0.1:11000"


def address(name: str, head: str = HEAD) -> str:
    """Where a resources server listens: the head server says."""
    with urllib.request.urlopen(f"{head}/global_config_dict_yaml") as reply:
        config = yaml.safe_load(reply.read())  # the body is a JSON string that holds YAML
    config = yaml.safe_load(config) if isinstance(config, str) else config
    server = config[name]["resources_servers"][name]
    return f"http://{server['host']}:{server['port']}"


def reward(url: str, row: dict, text: str) -> float:
    """The verifier's reward for a completion."""
    said = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [said]}
    response = {"id": "r", "object": "response", "created_at": 0, "model": "m", "output": [item]}
    more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    body = json.dumps({**row, "response": {**response, **more}}).encode()
    request = urllib.request.Request(f"{url}/verify", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return float(json.load(reply)["reward"])


def main(head: str = HEAD) -> None:
    from ludus.train.rows import rows_in

    url, (_, row) = address("mcqa", head), rows_in("mcqa")[0]
    right = row["expected_answer"]
    wrong = "A" if right != "A" else "B"
    print([reward(url, row, f"\\boxed{{{answer}}}") for answer in (right, wrong)])


if __name__ == "__main__":
    main()

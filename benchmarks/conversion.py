"""The time to convert a trajectory of 100 items to Chat Completions and back.

python benchmarks/conversion.py
"""

import json
import time

from ludus.dialects.chat import from_messages, to_messages
from ludus.response import function_call, function_call_output, message, reasoning


def trajectory() -> list[dict[str, object]]:
    """A question, then turns of reasoning, text, a call and its output."""
    items: list[dict[str, object]] = [{"role": "user", "content": "Plan a week."}]
    for turn in range(25):
        items += [
            reasoning(f"Thought {turn}. " * 10, id=f"rs_{turn}"),
            message(f"Text {turn}. " * 10, id=f"msg_{turn}"),
            function_call("look_up", {"day": turn, "what": "weather"}, call_id=f"call_{turn}"),
            function_call_output(f"call_{turn}", "sunny " * 20),
        ]
    return items[:100]


def main() -> None:
    items, best = trajectory(), 1e9
    for _ in range(200):
        began = time.perf_counter()
        from_messages(to_messages(items))
        best = min(best, time.perf_counter() - began)
    print(json.dumps({"items": len(items), "both_ways_s": best}))


if __name__ == "__main__":
    main()

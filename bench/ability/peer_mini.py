"""mini-swe-agent on one task: MAX_TURNS WORDS text|tools, in the current folder.

`tools` is what its command line does by default; `text` is its own set-up for models without tool calls. Its answer is
what it submits or, where that is nothing, its last message.
"""

import json
import os
import sys

from minisweagent.agents.default import DefaultAgent
from minisweagent.config import get_config_from_spec
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel

ENDS = {"Submitted": "done", "LimitsExceeded": "turns", "RepeatedFormatError": "malformed", "TimeExceeded": "time"}


def main(max_turns: int, words: str, way: str) -> None:
    config = get_config_from_spec("mini_textbased.yaml" if way == "text" else "mini.yaml")
    kind = LitellmTextbasedModel if way == "text" else LitellmModel
    kwargs = {"api_base": os.environ["OPENAI_BASE_URL"], "api_key": "none", "drop_params": True}
    settings = {key: value for key, value in config["model"].items() if key != "model_kwargs"}
    model = kind(model_name="openai/qwen", model_kwargs=kwargs, cost_tracking="ignore_errors", **settings)
    agent = DefaultAgent(
        model,
        LocalEnvironment(env=config["environment"]["env"]),
        system_template=config["agent"]["system_template"],
        instance_template=config["agent"]["instance_template"],
        step_limit=max_turns,
        cost_limit=0,
    )
    ended, detail, submitted = "error", "", ""
    try:
        result = agent.run(words)
        status, submitted = result.get("exit_status", ""), result.get("submission", "").strip()
        ended, detail = ENDS.get(status, "error"), status
    except Exception as error:  # noqa: BLE001 — whatever ends a peer's run is a fact of the bench
        detail = f"{type(error).__name__}: {error}"[:400]
    messages = agent.messages
    errors = ("Format error", "Tool call error")
    said = [str(message.get("content")) for message in messages if message.get("role") == "user"]
    malformed = sum(text.lstrip().startswith(errors) for text in said)
    last = [str(message.get("content")) for message in messages if message.get("role") == "assistant"][-1:]
    answer = submitted or (last or [""])[0]
    print(json.dumps({"ended": ended, "malformed": malformed, "answer": answer[:2000], "detail": detail}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])

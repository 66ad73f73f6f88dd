"""microbots on one task: MAX_TURNS WORDS, in the current folder.

Its OpenAI provider speaks the Responses API, where llama-server refuses its second turn (an assistant message as plain
input). So the same provider asks `chat/completions` here; prompt, reading of answers, retries and loop are its own.
Its container is replaced by a shell in the sandbox of the bench.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Any

os.environ["OPENAI_ENDPOINT"] = os.environ["OPENAI_BASE_URL"]

from microbots import WritingBot
from microbots.environment.Environment import CmdReturn, Environment
from microbots.llm.openai_api import OpenAIApi

COMMAND_TIMEOUT_S = 30


class HereEnvironment(Environment):  # type: ignore[misc, unused-ignore]
    """A shell for each command, in the folder."""

    def start(self) -> None:
        """It is always there."""

    def stop(self) -> None:
        """It never was."""

    def execute(self, command: str, timeout: int | None = None, sensitive: bool = False) -> CmdReturn:
        try:
            done = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S,
                stdin=subprocess.DEVNULL, errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return CmdReturn("", f"the command took longer than {COMMAND_TIMEOUT_S} s", 124)
        return CmdReturn(done.stdout, done.stderr, done.returncode)


class Chat(OpenAIApi):  # type: ignore[misc, unused-ignore]
    """Its `ask`, with the other of the two endpoints; counts what it could not read."""

    malformed = 0

    def ask(self, message: str) -> Any:
        self.retries = 0
        self.messages.append({"role": "user", "content": message})
        while True:
            answer = self.ai_client.chat.completions.create(model=self.deployment_name, messages=self.messages)
            text = answer.choices[0].message.content or ""
            self.messages.append({"role": "assistant", "content": text})
            valid, read = self._validate_llm_response(response=text)
            if valid:
                break
            self.malformed += 1
        self.messages[-1] = {"role": "assistant", "content": json.dumps(asdict(read))}
        return read


def main(max_turns: int, words: str) -> None:
    folder = os.getcwd()
    bot = WritingBot(model="openai/qwen", folder_to_mount=folder, environment=HereEnvironment())
    bot.llm = Chat(system_prompt=bot.llm.system_prompt.replace(f"/workdir/{os.path.basename(folder)}", folder),
                   deployment_name="qwen")  # fmt: skip
    answer, detail, ended = "", "", "error"
    try:
        result = bot.run(words, max_iterations=max_turns, timeout_in_seconds=1200)
        answer, detail = result.result or "", result.error or ""
        ended = "done" if result.status else "turns" if "iterations" in detail else "time"
    except Exception as error:  # noqa: BLE001 — it raises plain Exception when answers cannot be read
        detail = f"{type(error).__name__}: {error}"[:400]
        ended = "malformed" if "expected format" in detail else "error"
    print(json.dumps({"ended": ended, "malformed": bot.llm.malformed, "answer": answer[:2000], "detail": detail}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

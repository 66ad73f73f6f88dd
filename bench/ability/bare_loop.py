"""The loop that everybody writes first: MAX_TURNS WORDS, in the current folder. Nothing but the standard library.

One bash block an answer, its output back; a line `ANSWER: ...` ends it.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request

SYSTEM = (
    "You do a task in a Linux shell. Answer with one command in a ```bash block; its output is sent to you. When the"
    " task is done, answer with a line `ANSWER: ` and the answer instead."
)
BLOCK = re.compile(r"```(?:bash|sh)?\n(.*?)```", re.DOTALL)
END = re.compile(r"^ANSWER:\s*(.*)", re.MULTILINE | re.DOTALL)


def ask(messages: list[dict[str, str]]) -> str:
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "qwen", "messages": messages}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        return str(json.load(response)["choices"][0]["message"]["content"])


def run(command: str) -> str:
    try:
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except subprocess.TimeoutExpired:
        return "timed out after 30 s"
    return f"exit status {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}"


def main(max_turns: int, words: str) -> None:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": words}]
    ended, malformed, answer = "turns", 0, ""
    for _ in range(max_turns):
        said = ask(messages)
        messages.append({"role": "assistant", "content": said})
        block, end = BLOCK.search(said), END.search(said)
        if block:
            messages.append({"role": "user", "content": run(block[1])})
        elif end:
            ended, answer = "done", end[1].strip()
            break
        else:
            malformed += 1
            messages.append({"role": "user", "content": "Answer with one ```bash block, or with `ANSWER: `."})
    print(json.dumps({"ended": ended, "malformed": malformed, "answer": answer, "detail": ""}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])

"""One task through the Python API: MAX_TURNS WORDS FOLDER. The last line on stdout is what the run came to."""

import json
import sys

from stockade import Folder, WritingBot


def main(max_turns: int, words: str, folder: str) -> None:
    bot = WritingBot(model="openai/qwen", folder=Folder(folder), seed=1)
    result = bot.run(words, timeout=1200, max_iterations=max_turns)
    result.apply(flagged=True)
    print(
        json.dumps(
            {
                "reason": result.reason,
                "status": "done" if result.reason == "finish" else "stopped",
                "answer": result.answer,
                "turns": result.turns,
                "usage": result.usage.model_dump(),
                "malformed": sum(event.type == "answer_unreadable" for event in result.events),
                "log": [exchange.model_dump(mode="json") for exchange in result.log],
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])

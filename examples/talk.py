"""A model to talk to; the conversation is kept until you clear it.

python examples/talk.py
"""

import os

from stockade import LLM

llm = LLM(os.environ.get("STOCKADE_MODEL", "auto"), system_prompt="Answer in one sentence.", temperature=0.0)
print(llm.ask("What is a stockade?"))
print(llm.ask("And what is it made of?"))
print(len(llm.messages), "messages")
llm.clear_history()
print(len(llm.messages), "message left")

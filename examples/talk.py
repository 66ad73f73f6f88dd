"""A model to talk to, as in Microbots; the conversation is kept until you clear it.

python examples/talk.py
"""

import os

from stockade.microbots import LLM

llm = LLM("Answer in one sentence.", os.environ.get("STOCKADE_MODEL", "auto"), temperature=0.0)
print(llm.ask("What is a stockade?").thoughts)
print(llm.ask("And what is it made of?").thoughts)
print(len(llm.messages), "messages")
llm.clear_history()
print(len(llm.messages), "message left")

"""A server of chat completions on the loopback address, which grades pairs as a test says.

`server.faults` are answers to the first requests, as in `embedding_server`.
"""

import re
from collections.abc import Callable
from typing import Any

from embedding_server import EmbeddingServer

TEXTS = re.compile(r"^Query:\n(=+)\n(.*?)\n\1\n\nPassage:\n\1\n(.*?)\n\1\n", re.DOTALL | re.MULTILINE)
"""The two texts in the default prompt."""


class ChatServer(EmbeddingServer):
    """A judge.

    Args:
        say: The text that answers a query and a passage.
    """

    def __init__(self, say: Callable[[str, str], str | None]) -> None:
        super().__init__(lambda _: None)
        self.say = say

    def answer(self, handler: Any) -> Any:
        if self.is_faulty(handler):
            return None
        prompt = handler.body["messages"][0]["content"]
        found = TEXTS.search(prompt)
        if found is None:  # of the command questions
            return self.chat(handler, "yes" if "\nQuestion: " in prompt else "What is written here, and why?")
        assert handler.path == "/v1/chat/completions"
        with self.lock:
            self.answered["\n".join(found.groups()[1:])] += 1
        return self.chat(handler, self.say(*found.groups()[1:]))

    def chat(self, handler: Any, text: str | None) -> None:
        """Answer with a message."""
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 200, "completion_tokens": 1, "total_tokens": 201}
        handler.send(200, {"choices": [{"index": 0, "message": message}], "usage": usage})

"""OpenAI's Chat Completions dialect: POST /v1/chat/completions.

Reasoning comes as `reasoning_content`, as compatible servers send it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from . import scenario
from .scenario import Answer, Refused, Tool, Turn
from .wire import Reply, new_id, plain_event

FIELDS = frozenset(
    """audio frequency_penalty logit_bias logprobs max_completion_tokens max_tokens messages metadata
    modalities model n parallel_tool_calls prediction presence_penalty prompt_cache_key
    prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed
    service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user
    verbosity web_search_options""".split()
)
ATTACHMENTS = {"image_url": "image", "file": "file"}


def answer(request: dict[str, Any]) -> Reply:
    """Answers one request."""
    for name in request:
        if name not in FIELDS:
            raise Refused(400, f"Unrecognized request argument supplied: {name}")
    turn = read(request)
    made = scenario.answer(turn)
    writer = Writer(request, turn, made)
    if request.get("stream"):
        return Reply.of(made, writer.events())
    if made.breaks in ("fail", "event", "endless"):
        raise Refused(500, scenario.ERRORS[500])
    return Reply.of(made, None, writer.body())


def read(request: dict[str, Any]) -> Turn:
    """The request as far as it decides the answer."""
    turn = Turn(limit=request.get("max_completion_tokens") or request.get("max_tokens"))
    system, open_calls = [], set()
    for index, message in enumerate(request["messages"]):
        role = message["role"]
        if role == "tool":
            if message["tool_call_id"] not in open_calls:
                raise Refused(400, f"messages[{index}] answers no preceding 'tool_calls'.")
            open_calls.discard(message["tool_call_id"])
            turn.results.append(text_of(message["content"]))
            continue
        if open_calls:
            raise Refused(400, f"messages[{index}]: 'tool_calls' before it are not answered.")
        if role == "user":
            turn.text, turn.results = text_of(message["content"]), []
            kinds = [part["type"] for part in message["content"] if isinstance(part, dict)]
            turn.attachments = [ATTACHMENTS[kind] for kind in kinds if kind in ATTACHMENTS]
        elif role in ("system", "developer"):
            system.append(text_of(message["content"]))
        elif role == "assistant":
            open_calls = {call["id"] for call in message.get("tool_calls") or []}
        else:
            raise Refused(400, f"Invalid value: '{role}'. messages[{index}].role")
    turn.system = " ".join(system)
    read_settings(request, turn)
    return turn


def read_settings(request: dict[str, Any], turn: Turn) -> None:
    """Tools, the form of the answer, reasoning."""
    functions = [tool["function"] for tool in request.get("tools") or [] if tool["type"] == "function"]
    turn.tools = [Tool(function["name"], function.get("parameters") or {}) for function in functions]
    choice = request.get("tool_choice") or "auto"
    turn.choice = choice if isinstance(choice, str) else choice.get("function", {}).get("name", "auto")
    turn.parallel = request.get("parallel_tool_calls") is not False
    form = request.get("response_format") or {}
    turn.schema = (form.get("json_schema") or {}).get("schema")
    turn.json_object = form.get("type") == "json_object"
    turn.reasons = request.get("reasoning_effort") not in (None, "none")


def text_of(content: Any) -> str:
    """The text of a string or of parts."""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text") or part.get("refusal") or "" for part in content or [])


class Writer:
    """Writes an answer, whole or in chunks."""

    def __init__(self, request: dict[str, Any], turn: Turn, made: Answer) -> None:
        self.made = made
        self.counts = bool((request.get("stream_options") or {}).get("include_usage"))
        self.weighs = request.get("logprobs") is True
        self.input_tokens = scenario.tokens(turn.text, turn.system, *turn.results)
        self.head = {"id": new_id("chatcmpl-"), "created": int(time.time()), "model": request["model"]}
        self.calls = [
            {
                "id": new_id("call_"),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in made.calls
        ]

    def finish_reason(self) -> str:
        """Why the answer ended."""
        if self.calls:
            return "tool_calls"
        return "length" if self.made.is_cut else "stop"

    def usage(self) -> dict[str, Any]:
        """Counts of words."""
        thought = scenario.tokens(self.made.reasoning) if self.made.reasoning else 0
        arguments = [call.arguments for call in self.made.calls]
        said = scenario.tokens(self.made.text, self.made.refusal, *arguments)
        return {
            "prompt_tokens": self.input_tokens,
            "completion_tokens": said + thought,
            "total_tokens": self.input_tokens + said + thought,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": thought},
        }

    def body(self) -> dict[str, Any]:
        """The whole answer."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self.made.text or None,
            "refusal": self.made.refusal or None,
            "annotations": [],
        }
        if self.made.reasoning:
            message["reasoning_content"] = self.made.reasoning
        if self.calls:
            message["tool_calls"] = self.calls
        logprobs = self.logprobs(scenario.pieces(self.made.text))
        choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": self.finish_reason()}
        return {**self.head, "object": "chat.completion", "choices": [choice], "usage": self.usage()}

    def logprobs(self, words: list[str]) -> dict[str, Any] | None:
        """Probabilities, if they were asked for."""
        return (
            {"content": [scenario.certain(word) for word in words], "refusal": None} if self.weighs else None
        )

    def chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        """One chunk with one change."""
        logprobs = self.logprobs([delta["content"]]) if delta.get("content") else None
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        usage = {"usage": None} if self.counts else {}
        return plain_event({**self.head, "object": "chat.completion.chunk", "choices": [choice], **usage})

    def events(self) -> Iterator[bytes]:
        """The whole stream."""
        yield self.chunk({"role": "assistant", "content": None if self.calls else "", "refusal": None})
        for piece in scenario.pieces(self.made.reasoning):
            yield self.chunk({"reasoning_content": piece})
        for index, call in enumerate(self.calls):
            function = {"name": call["function"]["name"], "arguments": ""}
            yield self.chunk({"tool_calls": [{**call, "index": index, "function": function}]})
            for piece in scenario.pieces(call["function"]["arguments"]):
                yield self.chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        for piece in scenario.pieces(self.made.refusal):
            yield self.chunk({"refusal": piece})
        words = scenario.pieces(self.made.text)
        for piece in words[: len(words) // 2] if self.made.breaks else words:
            yield self.chunk({"content": piece})
        while self.made.breaks == "endless":
            yield self.chunk({"content": " more"})
        if self.made.breaks in ("fail", "event"):
            fault = {"message": scenario.ERRORS[500], "type": "server_error", "param": None, "code": 500}
            yield plain_event({"error": fault})
        if not self.made.breaks:
            yield from self.end()

    def end(self) -> Iterator[bytes]:
        """The reason, the counts if they were asked for, and the mark of the end."""
        yield self.chunk({}, self.finish_reason())
        if self.counts:
            last = {"object": "chat.completion.chunk", "choices": [], "usage": self.usage()}
            yield plain_event({**self.head, **last})
        yield b"data: [DONE]\n\n"

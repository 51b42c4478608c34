"""OpenAI's Responses dialect: POST /v1/responses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from . import scenario
from .scenario import Answer, Refused, Tool, Turn
from .wire import Reply, named_event, new_id

FIELDS = frozenset(
    """background context_management conversation include input instructions max_output_tokens
    max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt
    prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier
    service_tier store stream stream_options temperature text tool_choice tools top_logprobs top_p
    truncation user""".split()
)
CALLS = ("function_call", "custom_tool_call")
RESULTS = ("function_call_output", "custom_tool_call_output")
ITEMS = frozenset(("message", "reasoning", "web_search_call", *CALLS, *RESULTS))
ATTACHMENTS = {"input_image": "image", "input_file": "file"}

# Ids of reasoning items by what was sealed with them: both have to come back.
_sealed: dict[str, str] = {}


def answer(request: dict[str, Any]) -> Reply:
    """Answers one request."""
    for name in request:
        if name not in FIELDS:
            raise Refused(400, f"Unknown parameter: '{name}'.")
    if request.get("store") is not False:
        raise Refused(400, "This script stores nothing: 'store' must be false.")
    turn = read(request)
    made = scenario.answer(turn)
    writer = Writer(request, turn, made)
    if request.get("stream"):
        return Reply.of(made, writer.events())
    if made.breaks in ("fail", "event", "endless"):
        raise Refused(500, scenario.ERRORS[500])
    for _ in writer.events():
        pass
    return Reply.of(made, None, writer.response)


def error(refused: Refused) -> dict[str, Any]:
    """The body of an error answer."""
    kinds = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error"}
    kind = kinds.get(refused.status, "invalid_request_error")
    codes = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
    code = codes.get(refused.status)
    return {"error": {"message": refused.message, "type": kind, "param": None, "code": code}}


def read(request: dict[str, Any]) -> Turn:
    """The request as far as it decides the answer."""
    turn = Turn(limit=request.get("max_output_tokens"))
    system = [request.get("instructions") or ""]
    items = request["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    calls = set()
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        if kind not in ITEMS:
            raise Refused(400, f"Invalid value: '{kind}'. input[{index}].type")
        if kind in CALLS:
            calls.add(item["call_id"])
        elif kind in RESULTS:
            if item["call_id"] not in calls:
                raise Refused(400, f"No tool call found for {item['call_id']}.")
            turn.results.append(text_of(item["output"]))
        elif kind == "reasoning":
            check_reasoning(item)
        elif kind != "message":
            continue
        elif item["role"] == "user":
            turn.text, turn.results = text_of(item["content"]), []
            kinds = [part["type"] for part in item["content"] if isinstance(part, dict)]
            turn.attachments = [ATTACHMENTS[kind] for kind in kinds if kind in ATTACHMENTS]
        elif item["role"] in ("system", "developer"):
            system.append(text_of(item["content"]))
    turn.system = " ".join(part for part in system if part)
    read_settings(request, turn)
    return turn


def read_settings(request: dict[str, Any], turn: Turn) -> None:
    """Tools, the form of the answer, reasoning."""
    turn.tools = [
        Tool(tool["name"], tool.get("parameters") or {}, custom=tool["type"] == "custom")
        for tool in request.get("tools") or []
        if tool["type"] in ("function", "custom")
    ]
    choice = request.get("tool_choice") or "auto"
    if isinstance(choice, str):
        turn.choice = choice
    elif choice["type"] == "allowed_tools":
        turn.choice = choice["mode"]
        allowed = [tool.get("name") for tool in choice["tools"]]
        turn.tools = [tool for tool in turn.tools if tool.name in allowed]
    else:
        turn.choice = choice.get("name", "auto")
    turn.parallel = request.get("parallel_tool_calls") is not False
    form = (request.get("text") or {}).get("format") or {}
    turn.schema = form.get("schema")
    turn.json_object = form.get("type") == "json_object"
    effort = (request.get("reasoning") or {}).get("effort")
    turn.reasons = effort not in (None, "none")


def text_of(content: Any) -> str:
    """The text of a string or of parts."""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text") or part.get("refusal") or "" for part in content)


def check_reasoning(item: dict[str, Any]) -> None:
    """Reasoning comes back as it left or not at all."""
    sealed = item.get("encrypted_content")
    if sealed is None or _sealed.get(sealed) != item.get("id"):
        raise Refused(400, f"Item '{item.get('id')}' of type 'reasoning' could not be verified.")


class Writer:
    """Builds the response and its events."""

    def __init__(self, request: dict[str, Any], turn: Turn, made: Answer) -> None:
        self.made = made
        self.number = 0
        reasoning = request.get("reasoning") or {}
        self.summarizes = bool(reasoning.get("summary"))
        include = request.get("include") or []
        self.seals = "reasoning.encrypted_content" in include
        self.weighs = "message.output_text.logprobs" in include
        self.input_tokens = scenario.tokens(turn.text, turn.system, *turn.results)
        self.output_tokens = 0
        self.response: dict[str, Any] = {
            "id": new_id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "background": False,
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "instructions": request.get("instructions"),
            "max_output_tokens": request.get("max_output_tokens"),
            "metadata": request.get("metadata") or {},
            "model": request["model"],
            "output": [],
            "parallel_tool_calls": request.get("parallel_tool_calls", True),
            "previous_response_id": None,
            "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
            "service_tier": "default",
            "store": False,
            "temperature": request.get("temperature", 1.0),
            "text": request.get("text") or {"format": {"type": "text"}},
            "tool_choice": request.get("tool_choice", "auto"),
            "tools": request.get("tools") or [],
            "top_p": request.get("top_p", 1.0),
            "truncation": "disabled",
            "usage": None,
            "user": None,
        }

    def event(self, name: str, /, **fields: Any) -> bytes:
        """The next event."""
        data = {"type": name, "sequence_number": self.number, **fields}
        self.number += 1
        return named_event(name, data)

    def events(self) -> Iterator[bytes]:
        """The whole stream; the response is complete when it has ended."""
        yield self.event("response.created", response=self.response)
        yield self.event("response.in_progress", response=self.response)
        if self.made.reasoning:
            yield from self.reasoning()
        for call in self.made.calls:
            yield from self.call(call)
        if self.made.refusal:
            yield from self.message("refusal", self.made.refusal)
        elif self.made.text:
            yield from self.message("output_text", self.made.text)
        if not self.made.breaks:
            yield self.end()

    def end(self) -> bytes:
        """The terminal event."""
        status = "incomplete" if self.made.is_cut else "completed"
        if self.made.is_cut:
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            self.response["completed_at"] = int(time.time())
        thought = scenario.tokens(self.made.reasoning) if self.made.reasoning else 0
        self.response["status"] = status
        self.response["usage"] = {
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": self.output_tokens + thought,
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": self.input_tokens + self.output_tokens + thought,
        }
        return self.event(f"response.{status}", response=self.response)

    def added(self, item: dict[str, Any]) -> tuple[int, bytes]:
        """Opens an item."""
        index = len(self.response["output"])
        return index, self.event("response.output_item.added", output_index=index, item=item)

    def done(self, index: int, item: dict[str, Any]) -> bytes:
        """Closes an item."""
        self.response["output"].append(item)
        return self.event("response.output_item.done", output_index=index, item=item)

    def reasoning(self) -> Iterator[bytes]:
        """A reasoning item, with its summary if one was asked for."""
        item: dict[str, Any] = {"id": new_id("rs_"), "type": "reasoning", "summary": []}
        if self.seals:
            item["encrypted_content"] = new_id("gAAAAAB")
            _sealed[item["encrypted_content"]] = item["id"]
        index, event = self.added(item)
        yield event
        if self.summarizes:
            where = {"item_id": item["id"], "output_index": index, "summary_index": 0}
            part = {"type": "summary_text", "text": ""}
            yield self.event("response.reasoning_summary_part.added", **where, part=part)
            for piece in scenario.pieces(self.made.reasoning):
                yield self.event("response.reasoning_summary_text.delta", **where, delta=piece)
            part = {"type": "summary_text", "text": self.made.reasoning}
            yield self.event("response.reasoning_summary_text.done", **where, text=self.made.reasoning)
            yield self.event("response.reasoning_summary_part.done", **where, part=part)
            item = {**item, "summary": [part]}
        yield self.done(index, item)

    def call(self, call: scenario.Call) -> Iterator[bytes]:
        """A call of a function or of a custom tool."""
        kind = "custom_tool_call" if call.custom else "function_call"
        said = "input" if call.custom else "arguments"
        event_name = f"response.{kind}_{said}"
        item = {"id": new_id("fc_"), "type": kind, "call_id": new_id("call_"), "name": call.name, said: ""}
        index, event = self.added({**item, "status": "in_progress"})
        yield event
        where = {"item_id": item["id"], "output_index": index}
        for piece in scenario.pieces(call.arguments):
            self.output_tokens += 1
            yield self.event(f"{event_name}.delta", **where, delta=piece)
        name = {} if call.custom else {"name": call.name}
        yield self.event(f"{event_name}.done", **where, **{said: call.arguments}, **name)
        yield self.done(index, {**item, "status": "completed", said: call.arguments})

    def message(self, kind: str, text: str) -> Iterator[bytes]:
        """A message of one part, which may break in the middle."""
        item = {
            "id": new_id("msg_"),
            "type": "message",
            "status": "in_progress",
            "content": [],
            "role": "assistant",
        }
        index, event = self.added(item)
        yield event
        where = {"item_id": item["id"], "output_index": index, "content_index": 0}
        yield self.event("response.content_part.added", **where, part=part(kind, ""))
        words = scenario.pieces(text)
        name = "refusal" if kind == "refusal" else "output_text"
        for piece in words[: len(words) // 2] if self.made.breaks else words:
            self.output_tokens += 1
            logprobs = {} if kind == "refusal" else {"logprobs": self.logprobs([piece])}
            yield self.event(f"response.{name}.delta", **where, delta=piece, **logprobs)
        if self.made.breaks:
            yield from self.broken(where)
            return
        whole = {"refusal": text} if kind == "refusal" else {"text": text, "logprobs": self.logprobs(words)}
        yield self.event(f"response.{name}.done", **where, **whole)
        told = part(kind, text, self.logprobs(words))
        yield self.event("response.content_part.done", **where, part=told)
        status = "incomplete" if self.made.is_cut else "completed"
        yield self.done(index, {**item, "status": status, "content": [told]})

    def logprobs(self, words: list[str]) -> list[dict[str, Any]]:
        """Probabilities, if they were asked for."""
        return [scenario.certain(word) for word in words] if self.weighs else []

    def broken(self, where: dict[str, Any]) -> Iterator[bytes]:
        """What follows half of the text; a cut is the server's to make."""
        while self.made.breaks == "endless":
            yield self.event("response.output_text.delta", **where, delta=" more", logprobs=[])
        if self.made.breaks == "fail":
            self.response["status"] = "failed"
            self.response["error"] = {"code": "server_error", "message": scenario.ERRORS[500]}
            yield self.event("response.failed", response=self.response)
        if self.made.breaks == "event":
            fields = {"code": "server_error", "message": scenario.ERRORS[500], "param": None}
            yield self.event("error", **fields)


def part(kind: str, text: str, logprobs: list[Any] | None = None) -> dict[str, Any]:
    """A part of a message."""
    if kind == "refusal":
        return {"type": kind, "refusal": text}
    return {"type": kind, "text": text, "annotations": [], "logprobs": logprobs or []}

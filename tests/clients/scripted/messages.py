"""Anthropic's Messages dialect: POST /v1/messages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from . import scenario
from .scenario import Answer, Refused, Tool, Turn
from .wire import Reply, named_event, new_id

VERSIONS = ("2023-06-01", "2026-10-21")
FIELDS = frozenset(
    """cache_control container context_management inference_geo max_tokens mcp_servers messages metadata
    model output_config service_tier speed stop_sequences stream system temperature thinking
    tool_choice tools top_k top_p""".split()
)
ATTACHMENTS = {"image": "image", "document": "file"}
THINKING_BUDGET_MIN = 1024


def answer(request: dict[str, Any]) -> Reply:
    """Answers one request."""
    for name in request:
        if name not in FIELDS:
            raise Refused(400, f"{name}: Extra inputs are not permitted")
    if not isinstance(request.get("max_tokens"), int):
        raise Refused(400, "max_tokens: Field required")
    turn = read(request)
    made = scenario.answer(turn)
    writer = Writer(request, turn, made)
    if request.get("stream"):
        return Reply.of(made, writer.events())
    if made.breaks in ("fail", "event", "endless"):
        raise Refused(500, scenario.ERRORS[500])
    return Reply.of(made, None, writer.body())


def error(refused: Refused) -> dict[str, Any]:
    """The body of an error answer."""
    kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(refused.status, "api_error" if refused.status >= 500 else "invalid_request_error")
    fault = {"type": kind, "message": refused.message}
    return {"type": "error", "error": fault, "request_id": new_id("req_")}


def read(request: dict[str, Any]) -> Turn:
    """The request as far as it decides the answer; refuses what the provider refuses."""
    turn = Turn(limit=request["max_tokens"], system=text_of(request.get("system") or ""))
    before, open_calls = "assistant", set()
    for index, message in enumerate(request["messages"]):
        role, content = message["role"], message["content"]
        if role == before or role not in ("user", "assistant"):
            raise Refused(400, f"messages.{index}: roles must alternate, found '{role}' after '{before}'")
        before = role
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks or any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            raise Refused(400, f"messages.{index}: text content blocks must be non-empty")
        answered = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if answered != open_calls:
            raise Refused(400, f"messages.{index}: `tool_use` ids and `tool_result` blocks do not match")
        open_calls = {block["id"] for block in blocks if block["type"] == "tool_use"}
        if role == "user":
            read_user(blocks, turn)
        for block in blocks:
            if block["type"] == "thinking" and block["signature"] != signature(block["thinking"]):
                raise Refused(400, f"messages.{index}: Invalid `signature` in `thinking` block")
    if before != "user":
        raise Refused(400, "This model does not support assistant message prefill.")
    read_settings(request, turn)
    return turn


def read_user(blocks: list[dict[str, Any]], turn: Turn) -> None:
    """Texts begin a new turn; results belong to the one before."""
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    if texts:
        turn.text, turn.results = " ".join(texts), []
        kinds = [block["type"] for block in blocks]
        turn.attachments = [ATTACHMENTS[kind] for kind in kinds if kind in ATTACHMENTS]
    turn.results.extend(
        text_of(block.get("content", "")) for block in blocks if block["type"] == "tool_result"
    )


def read_settings(request: dict[str, Any], turn: Turn) -> None:
    """Tools, the form of the answer, thinking."""
    turn.tools = [Tool(tool["name"], tool["input_schema"]) for tool in request.get("tools") or []]
    choice = request.get("tool_choice") or {"type": "auto"}
    kinds = {"auto": "auto", "none": "none", "any": "required"}
    turn.choice = kinds.get(choice["type"]) or choice["name"]
    turn.parallel = not choice.get("disable_parallel_tool_use", False)
    turn.schema = ((request.get("output_config") or {}).get("format") or {}).get("schema")
    if turn.schema is not None:
        check_schema(turn.schema)
    turn.json_object = "Answer with one JSON object" in turn.system
    thinking = request.get("thinking") or {"type": "disabled"}
    turn.reasons = thinking["type"] != "disabled"
    budget = thinking.get("budget_tokens", THINKING_BUDGET_MIN)
    if turn.reasons and turn.choice not in ("auto", "none"):
        raise Refused(400, "Thinking may not be enabled when tool_choice forces tool use.")
    if turn.reasons and not THINKING_BUDGET_MIN <= budget < request["max_tokens"]:
        raise Refused(400, "`max_tokens` must be greater than `thinking.budget_tokens`.")


def check_schema(schema: Any) -> None:
    """Objects of an output format have to be closed."""
    if isinstance(schema, list):
        for part in schema:
            check_schema(part)
    elif isinstance(schema, dict):
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            raise Refused(400, "output_config.format.schema: 'additionalProperties' must be false")
        for part in schema.values():
            check_schema(part)


def text_of(content: Any) -> str:
    """The text of a string or of blocks."""
    if isinstance(content, str):
        return content
    return " ".join(block["text"] for block in content if block["type"] == "text")


def signature(thinking: str) -> str:
    """What proves that a thought is the model's own."""
    return hashlib.sha256(b"scripted" + thinking.encode()).hexdigest()


class Writer:
    """Writes an answer, whole or as events."""

    def __init__(self, request: dict[str, Any], turn: Turn, made: Answer) -> None:
        self.made = made
        self.input_tokens = scenario.tokens(turn.text, turn.system, *turn.results)
        self.message = {
            "id": new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": self.input_tokens, "output_tokens": 1},
        }

    def blocks(self) -> list[dict[str, Any]]:
        """The content, block by block."""
        blocks: list[dict[str, Any]] = []
        if self.made.reasoning:
            sealed = signature(self.made.reasoning)
            blocks.append({"type": "thinking", "thinking": self.made.reasoning, "signature": sealed})
        for call in self.made.calls:
            given = json.loads(call.arguments)
            blocks.append({"type": "tool_use", "id": new_id("toolu_"), "name": call.name, "input": given})
        if self.made.text:
            blocks.append({"type": "text", "text": self.made.text})
        return blocks

    def outcome(self) -> dict[str, Any]:
        """Why the answer ended."""
        if self.made.refusal:
            details = {"type": "refusal", "category": None, "explanation": self.made.refusal}
            return {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
        reason = "tool_use" if self.made.calls else "max_tokens" if self.made.is_cut else "end_turn"
        return {"stop_reason": reason, "stop_sequence": None}

    def usage(self) -> dict[str, Any]:
        """Counts of words."""
        arguments = [call.arguments for call in self.made.calls]
        said = scenario.tokens(self.made.text, self.made.reasoning, *arguments)
        usage: dict[str, Any] = {"input_tokens": self.input_tokens, "output_tokens": said}
        if self.made.reasoning:
            usage["output_tokens_details"] = {"thinking_tokens": scenario.tokens(self.made.reasoning)}
        return usage

    def body(self) -> dict[str, Any]:
        """The whole answer."""
        return {**self.message, "content": self.blocks(), **self.outcome(), "usage": self.usage()}

    def event(self, name: str, /, **fields: Any) -> bytes:
        """One event."""
        return named_event(name, {"type": name, **fields})

    def events(self) -> Iterator[bytes]:
        """The whole stream."""
        yield self.event("message_start", message=self.message)
        yield self.event("ping")
        for index, block in enumerate(self.blocks()):
            yield from self.block(index, block)
        while self.made.breaks == "endless":
            yield self.text(0, " more")
        if self.made.breaks in ("fail", "event"):
            yield self.event("error", error={"type": "api_error", "message": scenario.ERRORS[500]})
        if not self.made.breaks:
            yield self.event("message_delta", delta=self.outcome(), usage=self.usage())
            yield self.event("message_stop")

    def text(self, index: int, text: str) -> bytes:
        """A piece of text."""
        return self.event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})

    def block(self, index: int, block: dict[str, Any]) -> Iterator[bytes]:
        """The events of one block; text may break in the middle."""
        empty = {"thinking": "", "signature": ""} if block["type"] == "thinking" else {}
        empty = {"input": {}} if block["type"] == "tool_use" else empty
        empty = {"text": ""} if block["type"] == "text" else empty
        yield self.event("content_block_start", index=index, content_block={**block, **empty})
        if block["type"] == "text":
            words = scenario.pieces(block["text"])
            for piece in words[: len(words) // 2] if self.made.breaks else words:
                yield self.text(index, piece)
            if self.made.breaks:
                return
        if block["type"] == "thinking":
            for piece in scenario.pieces(block["thinking"]):
                delta = {"type": "thinking_delta", "thinking": piece}
                yield self.event("content_block_delta", index=index, delta=delta)
            delta = {"type": "signature_delta", "signature": block["signature"]}
            yield self.event("content_block_delta", index=index, delta=delta)
        if block["type"] == "tool_use":
            for piece in ["", *scenario.pieces(json.dumps(block["input"]))]:
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield self.event("content_block_delta", index=index, delta=delta)
        yield self.event("content_block_stop", index=index)

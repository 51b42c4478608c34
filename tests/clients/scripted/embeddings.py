"""OpenAI's embeddings: POST /v1/embeddings."""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import Any

from .scenario import Refused, tokens
from .wire import Reply

FIELDS = frozenset("dimensions encoding_format input model user".split())
WIDTH = 64


def answer(request: dict[str, Any]) -> Reply:
    """Answers one request."""
    for name in request:
        if name not in FIELDS:
            raise Refused(400, f"Unrecognized request argument supplied: {name}")
    width = request.get("dimensions", WIDTH)
    if not 1 <= width <= WIDTH:
        raise Refused(400, f"'dimensions' must be at most {WIDTH}.")
    inputs = request["input"]
    if isinstance(inputs, str) or isinstance(inputs[0], int):
        inputs = [inputs]
    if "script: error 429" in inputs:
        raise Refused(429, "Too many requests.")
    written = in_base64 if request.get("encoding_format") == "base64" else list
    rows = [
        {"object": "embedding", "index": index, "embedding": written(vector(repr(text))[:width])}
        for index, text in enumerate(inputs)
    ]
    count = tokens(*(str(text) for text in inputs))
    usage = {"prompt_tokens": count, "total_tokens": count}
    return Reply(body={"object": "list", "data": rows, "model": request["model"], "usage": usage})


def vector(text: str) -> tuple[float, ...]:
    """Numbers that binary32 holds exactly, different for every text."""
    digest = hashlib.sha512(text.encode()).digest()
    return tuple((byte - 128) / 128 for byte in digest[:WIDTH])


def in_base64(numbers: tuple[float, ...]) -> str:
    """Little-endian binary32, one after the other."""
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()

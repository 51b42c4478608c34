"""How answers travel: the pieces a dialect hands to the server."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .scenario import Answer

_numbers = itertools.count(1)


def new_id(prefix: str) -> str:
    """An id that no other answer of this process has."""
    return f"{prefix}{next(_numbers):024x}"


def compact(value: Any) -> bytes:
    """JSON as providers write it: UTF-8, no escapes beyond the needed."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass
class Reply:
    """An HTTP answer: either a body or server-sent events."""

    status: int = 200
    body: Any = None
    events: Iterable[bytes] | None = None
    # What becomes of the connection after the body or the last event:
    # "" ends it properly, "cut" drops it, "short" ends it properly but too early;
    # "hang" says nothing and waits for the other side to go.
    ends: str = ""
    # Seconds to wait before the first event or the body.
    pause_s: int = 0
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, made: Answer, events: Iterable[bytes] | None, body: Any = None) -> Reply:
        """A stream or, without events, a body."""
        ends = made.breaks if made.breaks in ("cut", "short", "hang") else ""
        return cls(events=events, body=body, ends=ends, pause_s=made.pause_s)


def named_event(name: str, data: dict[str, Any]) -> bytes:
    """An event with its name on a line of its own."""
    return b"event: " + name.encode() + b"\ndata: " + compact(data) + b"\n\n"


def plain_event(data: dict[str, Any]) -> bytes:
    """An event of data alone."""
    return b"data: " + compact(data) + b"\n\n"


def in_fragments(events: Iterable[bytes], size: int = 53) -> Iterator[bytes]:
    """The bytes of each event cut without regard to lines and characters."""
    for event in events:
        for start in range(0, len(event), size):
            yield event[start : start + size]

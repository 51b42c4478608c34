"""The host under test, as the clients see it. Started by ../run.sh."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import AsyncIterator
from typing import Any, get_args

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response, ResponseStreamEvent

BASE_URL = os.environ["COFFERDAM_URL"]
KEY = os.environ["COFFERDAM_KEY"]
MANAGER_KEY = os.environ["COFFERDAM_MANAGER_KEY"]
UPSTREAM = os.environ["UPSTREAM_URL"]
TIMEOUT_S = 30.0

SCRIPTED = ["house/responses", "house/chat", "house/anthropic"]
MODELS = ["local/demo", *SCRIPTED]
EMBEDDERS = {"local/embed": 384, "house/embed": 64, "house/embed-responses": 64}

# The client's class for each type of event.
EVENTS = {
    get_args(kind.model_fields["type"].annotation)[0]: kind
    for kind in get_args(get_args(ResponseStreamEvent)[0])
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> str:
    """Every model that answers."""
    return request.param


@pytest.fixture(params=SCRIPTED)
def scripted(request: pytest.FixtureRequest) -> str:
    """Every model behind a provider."""
    return request.param


@pytest.fixture(params=sorted(EMBEDDERS))
def embedder(request: pytest.FixtureRequest) -> str:
    """Every model that embeds."""
    return request.param


@pytest.fixture(scope="session")
def client() -> OpenAI:
    """The client people write `OpenAI()` for."""
    return OpenAI(base_url=BASE_URL, api_key=KEY, timeout=TIMEOUT_S, max_retries=0)


@pytest.fixture
async def async_client() -> AsyncIterator[AsyncOpenAI]:
    """Its asynchronous twin; one per test, as each has its own event loop."""
    async with AsyncOpenAI(base_url=BASE_URL, api_key=KEY, timeout=TIMEOUT_S, max_retries=0) as client:
        yield client


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of tests marked `anyio`."""
    return "asyncio"


def upstream_state() -> dict[str, int]:
    """What the scripted provider has counted."""
    with urllib.request.urlopen(f"{UPSTREAM}/state", timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def checked(response: Any) -> Any:
    """A response that has every field the client's types declare.

    The client itself takes what it is given; its types are the written contract.
    """
    Response.model_validate(response.to_dict())
    return response


def checked_events(events: list[Any]) -> list[Any]:
    """Events that are typed, numbered from 0, and in an order that makes sense."""
    for event in events:
        EVENTS[event.type].model_validate(event.to_dict())
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete", "response.failed")
    assert {event.response.id for event in (*events[:2], last)} == {last.response.id}
    check_items(events)
    return events


def check_items(events: list[Any]) -> None:
    """Every item is added once, done once unless the answer failed, and named alike in between."""
    ids: dict[int, str] = {}
    done: list[int] = []
    for event in events:
        index = getattr(event, "output_index", None)
        if event.type == "response.output_item.added":
            assert index == len(ids), f"item {index} comes after {len(ids)} others"
            ids[index] = event.item.id
        elif event.type == "response.output_item.done":
            assert event.item.id == ids[index]
            done.append(index)
        elif index is not None:
            assert event.item_id == ids[index] and index not in done, event
    assert sorted(done) == sorted(ids) or events[-1].type == "response.failed"
    if events[-1].type != "response.failed":
        assert [item.id for item in events[-1].response.output] == [ids[index] for index in sorted(ids)]


def types(events: list[Any]) -> list[str]:
    """The types of events, repetitions in a row once."""
    names: list[str] = []
    for event in events:
        if not names or names[-1] != event.type:
            names.append(event.type)
    return names


def delta_text(events: list[Any]) -> str:
    """The text that was streamed."""
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")

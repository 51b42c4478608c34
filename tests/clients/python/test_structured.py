"""Answers in a form: pydantic models, schemas, JSON without a schema."""

from __future__ import annotations

import json
from enum import Enum

import pytest
from conftest import checked
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel


class Mood(Enum):
    """How someone feels."""

    CALM = "calm"
    CROSS = "cross"


class Guest(BaseModel):
    """Someone who comes."""

    name: str
    age: int
    mood: Mood


class Party(BaseModel):
    """Something to parse: nested, with lists, enums, and what may be missing."""

    title: str
    guests: list[Guest]
    hours: float
    outdoors: bool
    note: str | None


def test_parse_gives_the_model(client: OpenAI, model: str) -> None:
    response = client.responses.parse(model=model, input="Plan a party for Ada, 36.", text_format=Party)
    party = response.output_parsed
    assert isinstance(party, Party) and party == Party.model_validate_json(response.output_text)
    assert all(isinstance(guest.mood, Mood) for guest in party.guests)


@pytest.mark.anyio
async def test_parse_gives_the_model_asynchronously(async_client: AsyncOpenAI, model: str) -> None:
    response = await async_client.responses.parse(model=model, input="Who is Ada?", text_format=Guest)
    assert isinstance(response.output_parsed, Guest)


def test_the_stream_helper_parses_at_the_end(client: OpenAI, model: str) -> None:
    with client.responses.stream(model=model, input="Plan a party.", text_format=Party) as stream:
        events = list(stream)
        response = stream.get_final_response()
    done = [event for event in events if event.type == "response.output_text.done"]
    assert len(done) == 1 and isinstance(done[0].parsed, Party)
    assert response.output_parsed == done[0].parsed


def test_the_format_is_echoed(client: OpenAI, model: str) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "sky": {"type": "string", "enum": ["clear", "grey"]}},
        "required": ["city", "sky"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "weather", "schema": schema, "strict": True}
    response = checked(client.responses.create(model=model, input="Paris is clear.", text={"format": form}))
    answer = json.loads(response.output_text)
    assert set(answer) == {"city", "sky"} and answer["sky"] in ("clear", "grey")
    assert response.text.format.name == "weather"


def test_an_object_without_a_schema(client: OpenAI, model: str) -> None:
    form = {"format": {"type": "json_object"}}
    response = client.responses.create(model=model, input="Answer in JSON.", text=form)
    assert isinstance(json.loads(response.output_text), dict)

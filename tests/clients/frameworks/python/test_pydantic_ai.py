"""Pydantic AI through its OpenAI Responses model."""

from __future__ import annotations

import json

import pytest
from conftest import BASE_URL, BOTH, GREETING, KEY
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Report(BaseModel):
    """A weather report."""

    city: str
    mild: bool


def speaks(model: str) -> OpenAIResponsesModel:
    return OpenAIResponsesModel(model, provider=OpenAIProvider(base_url=BASE_URL, api_key=KEY))


@pytest.fixture
def asked() -> list[str]:
    """The cities that the tool was called for."""
    return []


@pytest.fixture
def agent(model: str, asked: list[str]) -> Agent:
    """An agent with one tool."""
    agent = Agent(speaks(model), instructions="Be brief.")

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The current weather of a city."""
        asked.append(city)
        return json.dumps({"city": city, "sky": "clear"})

    return agent


@pytest.mark.anyio
async def test_a_prompt_is_answered_with_its_usage(agent: Agent, asked: list[str]) -> None:
    result = await agent.run(GREETING)
    assert GREETING in result.output and "Be brief." in result.output
    assert asked == [] and result.usage.output_tokens > 0


@pytest.mark.anyio
async def test_a_run_calls_a_tool_for_each_city(agent: Agent, asked: list[str]) -> None:
    result = await agent.run(BOTH)
    assert sorted(asked) == ["London", "Paris"] and '"sky": "clear"' in result.output


@pytest.mark.anyio
async def test_a_streamed_run_calls_a_tool_and_answers_in_pieces(agent: Agent, asked: list[str]) -> None:
    async with agent.run_stream(BOTH) as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    assert sorted(asked) == ["London", "Paris"]
    assert len(pieces) > 1 and '"sky": "clear"' in "".join(pieces)


@pytest.mark.anyio
async def test_a_run_goes_on_with_its_history(agent: Agent, asked: list[str]) -> None:
    first = await agent.run("What is the weather in Paris?")
    second = await agent.run("And what is the weather in Oslo?", message_history=first.all_messages())
    assert asked == ["Paris", "Oslo"] and "Oslo" in second.output


@pytest.mark.anyio
async def test_structured_output_is_parsed(model: str) -> None:
    agent = Agent(speaks(model), output_type=Report)
    assert isinstance((await agent.run("Report on Paris.")).output, Report)

"""The Agents SDK: its tool loop, run and streamed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from agents import Agent, OpenAIResponsesModel, Runner, function_tool
from openai import AsyncOpenAI
from pydantic import BaseModel

TWO = "What is the weather in Paris and London?"


class Report(BaseModel):
    """What an agent hands in."""

    city: str
    mild: bool


def weather_tool(asked: list[str]) -> Callable[..., object]:
    @function_tool
    def get_weather(city: str) -> str:
        """The current weather of a city."""
        asked.append(city)
        return json.dumps({"city": city, "sky": "clear"})

    return get_weather


def agent(client: AsyncOpenAI, model: str, asked: list[str]) -> Agent:
    speaks = OpenAIResponsesModel(model=model, openai_client=client)
    return Agent(name="Guide", instructions="Be brief.", model=speaks, tools=[weather_tool(asked)])


@pytest.mark.anyio
async def test_a_run_calls_and_answers(async_client: AsyncOpenAI, model: str) -> None:
    asked: list[str] = []
    result = await Runner.run(agent(async_client, model, asked), TWO)
    assert sorted(asked) == ["London", "Paris"]
    assert '"Paris", "sky"' in result.final_output and '"London", "sky"' in result.final_output
    assert "Be brief." in result.final_output
    assert result.context_wrapper.usage.requests == 2 and result.context_wrapper.usage.total_tokens > 0


@pytest.mark.anyio
async def test_a_streamed_run_calls_and_answers(async_client: AsyncOpenAI, model: str) -> None:
    asked: list[str] = []
    result = Runner.run_streamed(agent(async_client, model, asked), TWO)
    names = [event.name async for event in result.stream_events() if event.type == "run_item_stream_event"]
    assert sorted(asked) == ["London", "Paris"]
    assert names.count("tool_called") == 2 and names[-1] == "message_output_created"
    assert "clear" in result.final_output


@pytest.mark.anyio
async def test_a_second_turn_carries_the_history(async_client: AsyncOpenAI, model: str) -> None:
    asked: list[str] = []
    guide = agent(async_client, model, asked)
    first = await Runner.run(guide, "What is the weather in Paris?")
    history = [*first.to_input_list(), {"role": "user", "content": "And what is the weather in Oslo?"}]
    second = await Runner.run(guide, history)
    assert asked == ["Paris", "Oslo"] and "Oslo" in second.final_output


@pytest.mark.anyio
async def test_a_run_is_handed_over(async_client: AsyncOpenAI, model: str) -> None:
    speaks = OpenAIResponsesModel(model=model, openai_client=async_client)
    pilot = Agent(name="River Pilot", instructions="Speak of rivers.", model=speaks)
    triage = Agent(name="Triage", model=speaks, handoffs=[pilot])
    result = await Runner.run(triage, "Transfer to the river pilot in Paris!")
    assert result.last_agent.name == "River Pilot"
    assert "Speak of rivers." in result.final_output


@pytest.mark.anyio
async def test_a_run_with_an_output_type(async_client: AsyncOpenAI, model: str) -> None:
    speaks = OpenAIResponsesModel(model=model, openai_client=async_client)
    reporter = Agent(name="Reporter", model=speaks, output_type=Report)
    result = await Runner.run(reporter, "Report on Paris.")
    assert isinstance(result.final_output, Report)

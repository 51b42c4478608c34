"""Server tools: run by the host inside one response, beside functions of the client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool
from conftest import check_items, checked, checked_events
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import ResponseApplyPatchToolCall, ResponseCodeInterpreterToolCall

# The client's types know no items and tools of ours.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

PREFIXES = ["service:", "openrouter:"]
WHEN = "Tell me the datetime in Europe/Paris."
BOTH = "Tell me the datetime in Europe/Paris and the weather in Oslo."
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The current weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def output(response: Any) -> list[dict[str, Any]]:
    """The items as they came."""
    return [item.to_dict() for item in response.output]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_time_is_answered_in_one_response(client: OpenAI, model: str, prefix: str) -> None:
    tool: Any = {"type": f"{prefix}datetime"}
    whole = client.responses.create(model=model, input=WHEN, tools=[tool], tool_choice=tool)
    item, message = output(whole)
    assert item["type"] == tool["type"] and item["id"].startswith("st_")
    assert item["status"] in ("completed", "failed") and message["type"] == "message"
    assert whole.output_text and whole.usage is not None
    assert whole.usage.to_dict()["server_tool_use_details"]["tool_calls_executed"] == 1
    events = list(client.responses.create(model=model, input=WHEN, tools=[tool], stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    check_items(events)


def test_the_stream_helper_reads_over_server_tools(client: OpenAI) -> None:
    tool: Any = {"type": "service:datetime"}
    with client.responses.stream(model="local/demo", input=WHEN, tools=[tool]) as stream:
        events = list(stream)
        response = stream.get_final_response()
    item, message = output(response)
    assert item["type"] == "service:datetime" and item["timezone"] == "Europe/Paris", item
    assert item["datetime"][:4] in response.output_text
    added = [event.output_index for event in events if event.type == "response.output_item.added"]
    assert added == [0, 1]


def test_mixed_calls_and_the_history_sent_back(client: OpenAI) -> None:
    tools: Any = [WEATHER, {"type": "service:datetime"}]
    first = client.responses.create(model="local/demo", input=BOTH, tools=tools)
    items = output(first)
    assert sorted(item["type"] for item in items) == ["function_call", "service:datetime"]
    call = next(item for item in items if item["type"] == "function_call")
    history = [{"role": "user", "content": BOTH}, *items]
    history.append({"type": "function_call_output", "call_id": call["call_id"], "output": '{"sky": "clear"}'})
    second = client.responses.create(model="local/demo", input=history, tools=tools)
    assert '"sky": "clear"' in second.output_text and "Europe/Paris" in second.output_text


def test_wrong_settings_are_a_bad_request(client: OpenAI) -> None:
    tool: Any = {"type": "service:datetime", "parameters": {"timezone": "Mars/Olympus"}}
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="local/demo", input=WHEN, tools=[tool])
    assert "tools[0].parameters.timezone" in str(caught.value)


CODE = "console.log('hi'); 6 * 7"
INTERPRETER: dict[str, Any] = {"type": "code_interpreter", "container": {"type": "auto"}}


def test_code_is_run_and_typed_as_the_client_knows_it(client: OpenAI) -> None:
    ask = f'Run the code_interpreter with "{CODE}".'
    asked: dict[str, Any] = {"model": "local/demo", "input": ask, "tools": [INTERPRETER]}
    include: Any = ["code_interpreter_call.outputs"]
    events = list(client.responses.create(**asked, include=include, stream=True))
    checked_events(events)
    assert [event.type for event in events if "code_interpreter" in event.type] == [
        "response.code_interpreter_call.in_progress",
        "response.code_interpreter_call_code.delta",
        "response.code_interpreter_call_code.done",
        "response.code_interpreter_call.interpreting",
        "response.code_interpreter_call.completed",
    ]
    item = events[-1].response.output[0]
    assert isinstance(item, ResponseCodeInterpreterToolCall) and item.code == CODE
    assert item.outputs is not None and [output.logs for output in item.outputs] == ["hi\n", "42"]
    whole = checked(client.responses.create(**asked))
    assert whole.output[0].outputs is None and whole.output[0].container_id.startswith("cntr_")
    with client.responses.stream(**asked) as stream:
        assert len(list(stream)) and stream.get_final_response().output[0].code == CODE


def test_a_patch_is_the_clients_to_apply(client: OpenAI) -> None:
    ask = 'Use apply_patch with type delete_file and path "src/a.js".'
    events = list(
        client.responses.create(model="local/demo", input=ask, tools=[{"type": "apply_patch"}], stream=True)
    )
    checked_events(events)
    [item] = events[-1].response.output
    assert isinstance(item, ResponseApplyPatchToolCall), item
    assert item.operation.type == "delete_file" and item.operation.path == "src/a.js"
    answer: Any = {"type": "apply_patch_call_output", "call_id": item.call_id, "status": "completed"}
    history = [{"role": "user", "content": ask}, item.to_dict(), answer]
    second = client.responses.create(model="local/demo", input=history, tools=[{"type": "apply_patch"}])
    assert second.status == "completed"


def mixed_agent(client: AsyncOpenAI, asked: list[str]) -> Agent:
    """An agent with tools that the SDK lacks: `extra_body` replaces the tools the SDK would send."""

    @function_tool
    def get_weather(city: str) -> str:
        """The current weather of a city."""
        asked.append(city)
        return json.dumps({"city": city, "sky": "clear"})

    tools = [WEATHER, {"type": "openrouter:datetime"}]
    return Agent(
        name="Guide",
        model=OpenAIResponsesModel(model="local/demo", openai_client=client),
        model_settings=ModelSettings(extra_body={"tools": tools}),
        tools=[get_weather],
    )


@pytest.mark.anyio
async def test_a_streamed_run_of_an_agent_uses_both_kinds(async_client: AsyncOpenAI) -> None:
    asked: list[str] = []
    result = Runner.run_streamed(mixed_agent(async_client, asked), BOTH)
    raw = [event.data async for event in result.stream_events() if event.type == "raw_response_event"]
    assert asked == ["Oslo"]
    items = [event.item.to_dict() for event in raw if event.type == "response.output_item.done"]
    assert "openrouter:datetime" in [item["type"] for item in items]
    assert '"sky": "clear"' in result.final_output


@pytest.mark.anyio
async def test_a_run_of_an_agent_uses_both_kinds(async_client: AsyncOpenAI) -> None:
    asked: list[str] = []
    result = await Runner.run(mixed_agent(async_client, asked), BOTH)
    assert asked == ["Oslo"] and '"sky": "clear"' in result.final_output
    types = [item.to_dict()["type"] for item in result.raw_responses[0].output]
    assert sorted(types) == ["function_call", "openrouter:datetime"]
    history = [*result.to_input_list(), {"role": "user", "content": "And what is the weather in Lima?"}]
    again = await Runner.run(mixed_agent(async_client, asked), history)
    assert asked == ["Oslo", "Lima"] and "Lima" in again.final_output

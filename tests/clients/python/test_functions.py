"""Functions: called by the model, answered by the client, quoted in the end."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from conftest import checked, checked_events, types
from openai import OpenAI
from pydantic import BaseModel

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
ONE = "What is the weather in Paris?"
TWO = "What is the weather in Paris and London?"


class GetWeather(BaseModel):
    """The current weather of a city"""

    city: str


def ask(client: OpenAI, model: str, **more: Any) -> Any:
    return client.responses.create(model=model, **{"input": ONE, "tools": [WEATHER], **more})


def calls(response: Any) -> list[tuple[str, dict[str, Any]]]:
    found = [item for item in response.output if item.type == "function_call"]
    assert len({item.call_id for item in found}) == len(found)
    return [(item.name, json.loads(item.arguments)) for item in found]


def answered(question: str, response: Any) -> list[Any]:
    """The conversation with a result for every call, output sent back as it came."""
    items: list[Any] = [{"role": "user", "content": question}]
    items += [item.to_dict() for item in response.output]
    for item in response.output:
        if item.type == "function_call":
            city = json.loads(item.arguments)["city"]
            output = json.dumps({"city": city, "sky": "clear"})
            items.append({"type": "function_call_output", "call_id": item.call_id, "output": output})
    return items


def test_a_call_its_result_and_the_answer(client: OpenAI, model: str) -> None:
    first = checked(ask(client, model))
    assert first.status == "completed"
    assert calls(first) == [("get_weather", {"city": "Paris"})]
    second = checked(ask(client, model, input=answered(ONE, first)))
    assert calls(second) == []
    assert '{"city": "Paris", "sky": "clear"}' in second.output_text


def test_parallel_calls_and_both_results(client: OpenAI, model: str) -> None:
    first = checked(ask(client, model, input=TWO))
    assert calls(first) == [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "London"})]
    second = checked(ask(client, model, input=answered(TWO, first)))
    assert '"Paris", "sky"' in second.output_text and '"London", "sky"' in second.output_text


def test_a_result_may_have_parts(client: OpenAI, model: str) -> None:
    items = answered(ONE, ask(client, model))
    items[-1]["output"] = [{"type": "input_text", "text": "rain from noon"}]
    assert "rain from noon" in ask(client, model, input=items).output_text


def test_a_next_question_follows_a_result(client: OpenAI, model: str) -> None:
    first = ask(client, model)
    items = answered(ONE, first)
    second = ask(client, model, input=items)
    items += [item.to_dict() for item in second.output]
    items.append({"role": "user", "content": "And what is the weather in Oslo?"})
    assert calls(ask(client, model, input=items)) == [("get_weather", {"city": "Oslo"})]


def test_streamed_arguments_are_those_of_the_call(client: OpenAI, model: str) -> None:
    events = checked_events(list(ask(client, model, stream=True)))
    assert types(events)[2:-1] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    done = next(event for event in events if event.type == "response.function_call_arguments.done")
    final = checked(events[-1].response)
    assert "".join(deltas) == done.arguments == final.output[0].arguments
    assert calls(final) == [("get_weather", {"city": "Paris"})]


def test_parallel_calls_stream_as_items_of_their_own(client: OpenAI, model: str) -> None:
    events = checked_events(list(ask(client, model, input=TWO, stream=True)))
    assert [city for _, city in calls(events[-1].response)] == [{"city": "Paris"}, {"city": "London"}]
    second = ask(client, model, input=answered(TWO, events[-1].response), stream=True)
    text = "".join(event.delta for event in second if event.type == "response.output_text.delta")
    assert "Paris" in text and "London" in text


def test_the_stream_helper_parses_arguments(client: OpenAI, model: str) -> None:
    tools = [openai.pydantic_function_tool(GetWeather, name="get_weather")]
    tools = [{"type": "function", **tool["function"]} for tool in tools]
    with client.responses.stream(model=model, input=TWO, tools=tools) as stream:
        events = list(stream)
        response = stream.get_final_response()
    assert [call.parsed_arguments for call in response.output] == [{"city": "Paris"}, {"city": "London"}]
    snapshots = [event.snapshot for event in events if event.type == "response.function_call_arguments.delta"]
    assert json.loads(snapshots[-1]) == {"city": "London"}


def test_tool_choice_decides(client: OpenAI, model: str) -> None:
    assert calls(ask(client, model, tool_choice="none")) == []
    assert calls(ask(client, model, input="Hello!")) == []
    assert [name for name, _ in calls(ask(client, model, input="Hello!", tool_choice="required"))] == [
        "get_weather"
    ]
    other = {**WEATHER, "name": "get_tide", "description": "The tide of a city"}
    named = ask(client, model, tools=[WEATHER, other], tool_choice={"type": "function", "name": "get_tide"})
    assert [name for name, _ in calls(named)] == ["get_tide"]
    allowed = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "get_tide"}],
    }
    limited = ask(client, model, tools=[WEATHER, other], tool_choice=allowed)
    assert [name for name, _ in calls(limited)] == ["get_tide"]


def test_without_parallel_calls_there_is_one(client: OpenAI, model: str) -> None:
    response = ask(client, model, input=TWO, parallel_tool_calls=False)
    assert len(calls(response)) == 1 and response.parallel_tool_calls is False


CUSTOM: dict[str, Any] = {"type": "custom", "name": "look_up", "description": "Looks up a city"}


@pytest.mark.parametrize("free", ["local/demo", "house/responses"])
def test_a_custom_tool_takes_plain_text(client: OpenAI, free: str) -> None:
    items: list[Any] = [{"role": "user", "content": "Use look_up for Paris"}]
    request: dict[str, Any] = {"model": free, "tools": [CUSTOM]}
    whole = checked(client.responses.create(input=items, **request))
    events = checked_events(list(client.responses.create(input=items, stream=True, **request)))
    assert [item.type for item in whole.output] == ["custom_tool_call"]
    call = events[-1].response.output[0]
    deltas = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == call.input == whole.output[0].input and "Paris" in call.input
    items.append(call.to_dict())
    items.append({"type": "custom_tool_call_output", "call_id": call.call_id, "output": "on the Seine"})
    assert "on the Seine" in client.responses.create(input=items, **request).output_text


def test_a_tool_that_no_endpoint_has_is_a_bad_request(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="house/anthropic", input="Hello!", tools=[{"type": "computer"}])
    assert "tools[0].type" in str(caught.value)

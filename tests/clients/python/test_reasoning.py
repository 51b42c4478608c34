"""Reasoning and refusals."""

from __future__ import annotations

from typing import Any

from conftest import checked, checked_events, delta_text, types
from openai import OpenAI
from test_functions import ONE, WEATHER, answered, calls
from test_structured import Party

REASONING = {"effort": "low", "summary": "auto"}
SEALED = ["reasoning.encrypted_content"]


def thought(item: Any) -> str:
    """What a reasoning item says, as a summary or in full."""
    return "".join(part.text for part in [*(item.summary or []), *(item.content or [])])


def test_reasoning_stands_before_the_answer(client: OpenAI, model: str) -> None:
    response = checked(client.responses.create(model=model, input="Think!", reasoning=REASONING))
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert thought(response.output[0]) and "Think!" in response.output_text
    assert response.reasoning.effort == "low"
    assert response.usage.output_tokens_details.reasoning_tokens > 0


def test_reasoning_streams_to_its_end_before_the_answer_begins(client: OpenAI, model: str) -> None:
    events = checked_events(
        list(client.responses.create(model=model, input="Think!", reasoning=REASONING, stream=True))
    )
    names = types(events)
    begin = names.index("response.content_part.added", names.index("response.output_item.done"))
    before = [name for name in names[:begin] if name.endswith(".delta")]
    assert len(before) == 1 and before[0].startswith("response.reasoning_")
    assert all(not name.startswith("response.reasoning_") for name in names[begin:])
    streamed = "".join(event.delta for event in events if event.type == before[0])
    assert streamed == thought(events[-1].response.output[0]) != ""
    assert "Think!" in delta_text(events)


def test_the_stream_helper_takes_reasoning(client: OpenAI, model: str) -> None:
    with client.responses.stream(model=model, input="Think!", reasoning=REASONING) as stream:
        stream.until_done()
        response = stream.get_final_response()
    assert [item.type for item in response.output] == ["reasoning", "message"]


def test_reasoning_comes_back_through_a_tool_loop(client: OpenAI, model: str) -> None:
    def ask(items: Any) -> Any:
        settings = {"reasoning": REASONING, "include": SEALED, "store": False}
        return checked(client.responses.create(model=model, input=items, tools=[WEATHER], **settings))

    first = ask(ONE)
    assert [item.type for item in first.output] == ["reasoning", "function_call"]
    assert calls(first) == [("get_weather", {"city": "Paris"})]
    second = ask(answered(ONE, first))
    assert '"sky": "clear"' in second.output_text


def test_streamed_reasoning_comes_back_too(client: OpenAI, model: str) -> None:
    settings: dict[str, Any] = {"model": model, "reasoning": REASONING, "include": SEALED}
    stream = client.responses.create(input="Think!", stream=True, **settings)
    items = [event.item.to_dict() for event in stream if event.type == "response.output_item.done"]
    history = [{"role": "user", "content": "Think!"}, *items, {"role": "user", "content": "Again!"}]
    response = checked(client.responses.create(input=history, **settings))
    assert response.status == "completed" and "Again!" in response.output_text


def test_reasoning_of_another_model_is_no_obstacle(client: OpenAI, scripted: str) -> None:
    settings: dict[str, Any] = {"reasoning": REASONING, "include": SEALED}
    first = client.responses.create(model="local/demo", input="Think!", **settings)
    items = [item.to_dict() for item in first.output]
    history = [{"role": "user", "content": "Think!"}, *items, {"role": "user", "content": "Again!"}]
    second = client.responses.create(model=scripted, input=history, **settings)
    assert "Again!" in second.output_text


def test_no_reasoning_unless_asked_for(client: OpenAI, model: str) -> None:
    response = client.responses.create(model=model, input="Think!")
    assert [item.type for item in response.output] == ["message"]


def refusal_of(response: Any) -> str:
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    return "".join(part.refusal for part in parts if part.type == "refusal")


def test_a_refusal_is_a_part_of_its_own(client: OpenAI, scripted: str) -> None:
    response = checked(client.responses.create(model=scripted, input="script: refuse"))
    assert refusal_of(response) == "I will not help with that." and response.output_text == ""


def test_a_refusal_streams(client: OpenAI, scripted: str) -> None:
    events = checked_events(
        list(client.responses.create(model=scripted, input="script: refuse", stream=True))
    )
    streamed = "".join(event.delta for event in events if event.type == "response.refusal.delta")
    done = [event.refusal for event in events if event.type == "response.refusal.done"]
    assert done == [streamed] == [refusal_of(events[-1].response)] == ["I will not help with that."]


def test_a_refusal_is_not_parsed(client: OpenAI, scripted: str) -> None:
    response = client.responses.parse(model=scripted, input="script: refuse", text_format=Party)
    assert response.output_parsed is None

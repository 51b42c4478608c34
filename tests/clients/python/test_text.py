"""Plain answers: whole, streamed, through the stream helper, cut at the limit."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from conftest import MODELS, SCRIPTED, checked, checked_events, delta_text, types
from openai import AsyncOpenAI, OpenAI

QUESTION = "Where does the Köln train go — 北京?"
PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
        "0000000d49444154789c6360f8cf50c000038301800b7f2cbd0000000049454e44ae426082"
    )
).decode()
PAPER = base64.b64encode(b"%PDF-1.4\n%%EOF\n").decode()
LONG_QUESTION = " ".join(f"word{number}" for number in range(80))


def create(client: OpenAI, model: str, **more: Any) -> Any:
    return client.responses.create(model=model, **{"input": QUESTION, **more})


def test_an_answer_repeats_what_user_and_system_said(client: OpenAI, model: str) -> None:
    response = checked(create(client, model, instructions="Be brief."))
    assert response.status == "completed"
    assert QUESTION in response.output_text and "Be brief." in response.output_text
    assert response.model == model
    assert response.error is None and response.incomplete_details is None
    assert [item.type for item in response.output] == ["message"]
    assert response.usage.input_tokens > 0 and response.usage.output_tokens > 0
    total = response.usage.input_tokens + response.usage.output_tokens
    assert response.usage.total_tokens == total


def test_roles_of_a_conversation_arrive(client: OpenAI, model: str) -> None:
    conversation = [
        {"role": "system", "content": "Speak Dutch."},
        {"role": "user", "content": [{"type": "input_text", "text": "I am Ada."}]},
        {"role": "assistant", "content": "Hello Ada."},
        {"role": "user", "content": "Who am I?"},
    ]
    text = checked(create(client, model, input=conversation)).output_text
    assert "Who am I?" in text and "Speak Dutch." in text


def test_pictures_and_files_arrive(client: OpenAI, model: str) -> None:
    parts = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PAPER}"},
    ]
    response = checked(create(client, model, input=[{"role": "user", "content": parts}]))
    assert "What is this?" in response.output_text
    assert "With it came: image, file." in response.output_text


@pytest.mark.parametrize("weighing", ["local/demo", "house/responses", "house/chat"])
def test_probabilities_come_with_the_text(client: OpenAI, weighing: str) -> None:
    more: dict[str, Any] = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
    response = checked(create(client, weighing, **more))
    part = response.output[0].content[0]
    assert "".join(entry.token for entry in part.logprobs) == part.text
    events = checked_events(list(create(client, weighing, stream=True, **more)))
    for event in events:
        if event.type == "response.output_text.delta":
            assert "".join(entry.token for entry in event.logprobs) == event.delta
    assert events[-1].response.output[0].content[0].logprobs == part.logprobs


def test_what_only_the_host_knows_stays_with_the_host(client: OpenAI, model: str) -> None:
    # The scripted provider refuses fields that its dialect does not have.
    more = {
        "provider": {"allow_fallbacks": False},
        "models": [model],
        "plugins": [{"id": "response-healing"}],
        "session_id": "s1",
        "trace": {"name": "t"},
        "top_k": 40,
        "of_another_time": {"a": 1},
    }
    response = checked(create(client, model, extra_body=more, user="u1", truncation="auto"))
    assert QUESTION in response.output_text


def test_settings_are_echoed_with_their_effective_values(client: OpenAI, model: str) -> None:
    plain = create(client, model)
    assert (plain.temperature, plain.top_p, plain.parallel_tool_calls) == (1.0, 1.0, True)
    response = create(client, model, temperature=0.25, metadata={"trace": "t1"}, max_output_tokens=500)
    assert (response.temperature, response.metadata, response.max_output_tokens) == (
        0.25,
        {"trace": "t1"},
        500,
    )


def test_the_generation_id_header_is_the_response_id(client: OpenAI, model: str) -> None:
    raw = client.responses.with_raw_response.create(model=model, input=QUESTION)
    assert raw.headers["x-generation-id"] == raw.parse().id


def test_a_stream_has_the_same_content_as_the_whole_answer(client: OpenAI, model: str) -> None:
    events = checked_events(list(create(client, model, stream=True)))
    assert types(events) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    final = checked(events[-1].response)
    assert delta_text(events) == final.output_text == create(client, model).output_text
    assert len([event for event in events if event.type == "response.output_text.delta"]) > 3
    assert final.usage.output_tokens > 0
    assert events[0].response.output == [] and events[0].response.status == "in_progress"


def test_the_stream_helper_collects_the_answer(client: OpenAI, model: str) -> None:
    with client.responses.stream(model=model, input=QUESTION, instructions="Be brief.") as stream:
        events = list(stream)
        response = stream.get_final_response()
    assert QUESTION in response.output_text
    assert delta_text(events) == response.output_text
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert deltas[-1].snapshot == response.output_text


def test_the_limit_makes_an_incomplete_answer(client: OpenAI, model: str) -> None:
    response = checked(create(client, model, input=LONG_QUESTION, max_output_tokens=16))
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert 0 < len(response.output_text.split()) <= 16


def test_the_limit_ends_a_stream_as_incomplete(client: OpenAI, model: str) -> None:
    events = checked_events(
        list(create(client, model, input=LONG_QUESTION, max_output_tokens=16, stream=True))
    )
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"
    assert delta_text(events) == events[-1].response.output_text != ""


def test_output_is_taken_back_verbatim_as_input(client: OpenAI, model: str) -> None:
    first = create(client, model, input="My name is Ada.")
    items = [item.to_dict() for item in first.output]
    history = [{"role": "user", "content": "My name is Ada."}, *items, {"role": "user", "content": "Go on."}]
    second = checked(create(client, model, input=history))
    assert second.status == "completed" and "Go on." in second.output_text


HISTORIES = {
    "parts without an id": [{"role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}],
    "logprobs null": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Yes.", "annotations": [], "logprobs": None}],
        }
    ],
    "a refusal": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}],
    "nothing said": [{"type": "message", "role": "assistant", "content": ""}],
    "bare reasoning": [{"type": "reasoning", "id": "rs_1", "summary": []}],
    "foreign reasoning": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAx"}],
    "a call without ids": [
        {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "found"},
    ],
    "broken arguments, empty result": [
        {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": '{"a":'},
        {"type": "function_call_output", "call_id": "call_1", "output": ""},
    ],
    "a provider's own search": [
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "trains"},
        }
    ],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES.keys())
def test_histories_of_other_clients_are_taken(client: OpenAI, model: str, history: list[Any]) -> None:
    items = [{"role": "user", "content": "One."}, *history, {"role": "user", "content": "Two."}]
    assert "Two." in checked(create(client, model, input=items)).output_text


def test_streamed_items_are_taken_back_verbatim_as_input(client: OpenAI, model: str) -> None:
    events = list(create(client, model, input="My name is Ada.", stream=True))
    items = [event.item.to_dict() for event in events if event.type == "response.output_item.done"]
    history = [{"role": "user", "content": "My name is Ada."}, *items, {"role": "user", "content": "Go on."}]
    assert "Go on." in create(client, model, input=history).output_text


@pytest.mark.anyio
async def test_the_asynchronous_client_answers_many_at_once(async_client: AsyncOpenAI, model: str) -> None:
    async def ask(number: int) -> str:
        return (await async_client.responses.create(model=model, input=f"Question {number}!")).output_text

    texts = await asyncio.gather(*(ask(number) for number in range(8)))
    assert all(f"Question {number}!" in text for number, text in enumerate(texts))


@pytest.mark.anyio
async def test_many_streams_of_all_models_keep_apart(async_client: AsyncOpenAI) -> None:
    async def ask(number: int) -> list[Any]:
        asked = f"Question {number}: " + "again " * 50
        model = MODELS[number % len(MODELS)]
        stream = await async_client.responses.create(model=model, input=asked, stream=True)
        return [event async for event in stream]

    for number, events in enumerate(await asyncio.gather(*(ask(number) for number in range(24)))):
        assert f"Question {number}: again" in delta_text(checked_events(events))


@pytest.mark.anyio
async def test_a_long_silence_before_the_first_word_is_bridged(async_client: AsyncOpenAI) -> None:
    async def lines(model: str) -> list[str]:
        request = async_client.responses.with_streaming_response.create
        async with request(model=model, input="script: wait 18 s", stream=True) as answer:
            return [line async for line in answer.iter_lines()]

    async def events(model: str) -> list[Any]:
        request = async_client.responses.create
        return [event async for event in await request(model=model, input="script: wait 18 s", stream=True)]

    written, *told = await asyncio.gather(lines(SCRIPTED[0]), *(events(model) for model in SCRIPTED))
    # A comment, with nothing that a client could take for an empty event.
    assert written[0].startswith(": keep-alive") and written[1].startswith("event: response.created")
    assert written[-1] == "" or written[-1] == "data: [DONE]"
    for stream in told:
        assert delta_text(checked_events(stream)) == "Here I am."


@pytest.mark.anyio
async def test_the_asynchronous_client_streams(async_client: AsyncOpenAI, model: str) -> None:
    stream = await async_client.responses.create(model=model, input=QUESTION, stream=True)
    events = checked_events([event async for event in stream])
    assert QUESTION in delta_text(events)


@pytest.mark.anyio
async def test_the_asynchronous_stream_helper_collects(async_client: AsyncOpenAI, model: str) -> None:
    async with async_client.responses.stream(model=model, input=QUESTION) as stream:
        events = [event async for event in stream]
        response = await stream.get_final_response()
    assert delta_text(events) == response.output_text and QUESTION in response.output_text


@pytest.mark.parametrize("model", SCRIPTED)
def test_what_was_sent_upstream_is_an_event_before_all_others(client: OpenAI, model: str) -> None:
    debug = {"debug": {"echo_upstream_body": True}}
    shown, *events = list(create(client, model, stream=True, extra_body=debug))
    assert shown.type == "response.debug" and shown.sequence_number == 0
    assert "Köln" in str(shown.debug["echo_upstream_body"])
    assert [event.sequence_number for event in events] == list(range(1, len(events) + 1))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    assert delta_text(events) == events[-1].response.output_text

"""Errors as the client's exception classes, and failures after the first word."""

from __future__ import annotations

import os
import time
from typing import Any

import openai
import pytest
from conftest import BASE_URL, KEY, MANAGER_KEY, SCRIPTED, checked, checked_events, delta_text, upstream_state
from openai import AsyncOpenAI, OpenAI

SECRETS = [
    value for name, value in os.environ.items() if name.startswith("UPSTREAM_") and name.endswith("_KEY")
]

# Characters; more than sockets hold, so that an early answer meets a client still writing.
LARGE = 8_000_000


def fault(caught: pytest.ExceptionInfo[Any], status: int) -> dict[str, Any]:
    """The `error` of the answer, whose code is the status."""
    error = caught.value
    assert error.status_code == status, error
    body = error.response.json()["error"]
    assert body["code"] == status and body["message"] in str(error)
    assert not any(secret in error.response.text for secret in [*SECRETS, KEY])
    return body


def ask(client: OpenAI, model: str, **more: Any) -> Any:
    return client.responses.create(model=model, **{"input": "Hello!", **more})


@pytest.mark.parametrize("key", ["wrong", "cfd_0123456789abcdef"])
def test_a_bad_key_is_an_authentication_error(key: str) -> None:
    client = OpenAI(base_url=BASE_URL, api_key=key, max_retries=0)
    with pytest.raises(openai.AuthenticationError) as caught:
        ask(client, "local/demo")
    assert fault(caught, 401)["metadata"]["error_type"] == "authentication"
    with pytest.raises(openai.AuthenticationError):
        client.models.list()


@pytest.mark.parametrize(
    ("more", "path"),
    [
        (
            {"input": [{"role": "user", "content": [{"type": "input_txt", "text": "x"}]}]},
            "input[0].content[0].type",
        ),
        ({"input": [{"role": "nobody", "content": "x"}]}, "input[0].role"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "teleport"}]}, "tools[0].type"),
        ({"temperature": "hot"}, "temperature"),
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"extra_body": {"max_tool_calls": 31}}, "max_tool_calls"),
    ],
)
def test_a_bad_request_names_the_path(client: OpenAI, more: dict[str, Any], path: str) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, "local/demo", stream=stream, **more)
        assert path in fault(caught, 400)["message"]


def test_a_reference_to_a_stored_item_is_refused(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, "local/demo", input=[{"type": "item_reference", "id": "msg_1"}])
    assert "stateless" in fault(caught, 400)["message"]


def test_a_large_request_with_a_bad_key_is_an_authentication_error() -> None:
    client = OpenAI(base_url=BASE_URL, api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        ask(client, "local/demo", input="x" * LARGE)


def test_what_the_host_does_not_have_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="local/demo", messages=[{"role": "user", "content": "Hello!"}])
    fault(caught, 404)
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.retrieve("resp_0")
    fault(caught, 404)


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, "house/nobody")
    assert "house/nobody" in fault(caught, 404)["message"]


def test_a_model_of_the_other_kind_is_a_bad_request(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        ask(client, "local/embed")
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model="local/demo", input="x")


@pytest.mark.parametrize("stream", [False, True])
def test_a_limited_provider_is_a_rate_limit_error(client: OpenAI, scripted: str, stream: bool) -> None:
    with pytest.raises(openai.RateLimitError) as caught:
        ask(client, scripted, input="script: error 429", stream=stream)
    assert fault(caught, 429)["metadata"]["error_type"] == "rate_limit_exceeded"
    assert caught.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize("status", [401, 500, 503])
@pytest.mark.parametrize("stream", [False, True])
def test_a_failing_provider_is_a_bad_gateway(
    client: OpenAI, scripted: str, status: int, stream: bool
) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client, scripted, input=f"script: error {status}", stream=stream)
    fault(caught, 502)


def test_a_request_the_provider_refuses_is_a_bad_request(client: OpenAI, scripted: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, scripted, input="script: error 400")
    assert "does not like" in fault(caught, 400)["message"]


def test_a_provider_that_does_not_know_its_model_is_not_found(client: OpenAI, scripted: str) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, scripted, input="script: error 404")
    fault(caught, 404)


def test_a_refused_credential_of_the_host_is_a_bad_gateway(client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client, "house/denied")
    fault(caught, 502)


@pytest.mark.parametrize("how", ["cut", "stop short"])
def test_a_broken_whole_answer_is_a_bad_gateway(client: OpenAI, scripted: str, how: str) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client, scripted, input=f"script: {how}")
    fault(caught, 502)


@pytest.mark.parametrize("how", ["fail", "error event", "cut", "stop short"])
def test_a_failure_after_the_first_word_is_an_event_of_the_stream(
    client: OpenAI, scripted: str, how: str
) -> None:
    events = checked_events(list(ask(client, scripted, input=f"script: {how}", stream=True)))
    failed = checked(events[-1].response)
    assert events[-1].type == "response.failed" and failed.status == "failed"
    assert failed.error.code == "server_error" and failed.error.message
    assert delta_text(events).startswith("One word follows")
    assert failed.to_dict()["error_type"] in ("provider_unavailable", "server")


@pytest.mark.parametrize("how", ["fail", "cut"])
def test_the_stream_helper_does_not_take_a_failure_for_an_end(
    client: OpenAI, scripted: str, how: str
) -> None:
    with client.responses.stream(model=scripted, input=f"script: {how}") as stream:
        with pytest.raises(RuntimeError, match="response.completed"):
            stream.get_final_response()


@pytest.mark.anyio
async def test_the_asynchronous_client_sees_failures(async_client: AsyncOpenAI, scripted: str) -> None:
    stream = await async_client.responses.create(model=scripted, input="script: cut", stream=True)
    events = [event async for event in stream]
    assert events[-1].type == "response.failed"


def test_a_limited_embedder_is_a_rate_limit_error(client: OpenAI) -> None:
    with pytest.raises(openai.RateLimitError) as caught:
        client.embeddings.create(model="house/embed", input="script: error 429")
    fault(caught, 429)


def test_a_key_that_has_used_its_tokens_gets_a_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = OpenAI(base_url=BASE_URL, api_key=MANAGER_KEY, max_retries=0)
    made: Any = manager.post("/keys", cast_to=object, body={"name": "thirsty"})
    client = OpenAI(base_url=BASE_URL, api_key=made["key"], max_retries=0)
    # A minute's tokens are a few of these.
    with pytest.raises(openai.RateLimitError) as caught:
        for _ in range(20):
            ask(client, "house/chat", input="word " * 80_000, max_output_tokens=16)
    metadata = fault(caught, 429)["metadata"]
    assert (metadata["refused_by"], metadata["limit"]) == ("host", "tokens_per_minute")
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 60

    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", wait)
    with pytest.raises(KeyboardInterrupt):
        ask(client.with_options(max_retries=1), "house/chat")
    # Not the client's own guess, which is below a second.
    assert waits and waits[0].is_integer() and waits[0] >= 1


def test_retrying_is_left_to_the_client(client: OpenAI) -> None:
    before = upstream_state()["requests"]
    with pytest.raises(openai.RateLimitError):
        ask(client, SCRIPTED[0], input="script: error 429")
    assert upstream_state()["requests"] == before + 1


def test_a_client_that_leaves_ends_the_request_upstream(client: OpenAI, scripted: str) -> None:
    before = upstream_state()["abandoned"]
    stream = ask(client, scripted, input="script: endless", stream=True)
    deltas = (event for event in stream if event.type == "response.output_text.delta")
    assert [next(deltas).delta for _ in range(3)]
    stream.close()
    await_abandoned(before)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_waits_no_longer_ends_the_request_upstream(
    client: OpenAI, scripted: str, stream: bool
) -> None:
    before = upstream_state()["abandoned"]
    with pytest.raises(openai.APITimeoutError):
        ask(client, scripted, input="script: hang", stream=stream, timeout=0.5)
    await_abandoned(before)


def await_abandoned(before: int) -> None:
    """Waits until the provider sees the connection end: after 10 s where the answer is read on for its usage."""
    deadline = time.monotonic() + 18
    while upstream_state()["abandoned"] == before:
        assert time.monotonic() < deadline, "the provider still talks to nobody"
        time.sleep(0.02)

"""Remote MCP servers, the official SDK's, behind models that know functions only."""

from __future__ import annotations

import json
import os
from typing import Any

import openai
import pytest
from conftest import checked, checked_events
from openai import OpenAI
from openai.types.responses.response_output_item import McpApprovalRequest, McpCall, McpListTools

SERVICES = os.environ["SERVICES_URL"]
TOKEN = os.environ["UPSTREAM_SERVICES_KEY"]
MODELS = ["local/demo", "house/chat", "house/anthropic"]
ADD = "Add with a 3 and b 4."
SEVERAL = "Slow with seconds 1; add with a 1 and b 2; add with a 10 and b 20."
FORGET = "Forget the city Paris."


@pytest.fixture(scope="module", autouse=True)
def stored_token(client: OpenAI) -> None:
    """The token of the server that requires one."""
    secret = {"hosts": ["localhost"], "value": TOKEN}
    client.put("/vault/secrets/services_token", body=secret, cast_to=dict)


def server(*names: str, path: str = "/mcp", **members: Any) -> Any:
    """A server with these tools."""
    tool = {"type": "mcp", "server_label": "calculator", "server_url": SERVICES + path, "require_approval": "never"}
    return {**tool, "allowed_tools": list(names), **members}


def choose(name: str) -> Any:
    """Makes the model call a tool."""
    return {"type": "mcp", "server_label": "calculator", "name": name}


@pytest.mark.parametrize("model", MODELS)
def test_a_tool_is_listed_and_called(client: OpenAI, model: str) -> None:
    request: Any = {"model": model, "input": FORGET, "tools": [server("forget")], "tool_choice": choose("forget")}
    whole = checked(client.responses.create(**request))
    listed, called, message = whole.output
    assert isinstance(listed, McpListTools) and isinstance(called, McpCall), whole
    assert [tool.name for tool in listed.tools] == ["forget"] and not listed.error
    assert (called.name, called.server_label, called.status, called.error) == ("forget", "calculator", "completed", None)
    assert called.output is not None and called.output.endswith(" is forgotten")
    assert message.type == "message"
    events = checked_events(list(client.responses.create(**request, stream=True)))
    types = [event.type for event in events]
    for name in ("mcp_list_tools.completed", "mcp_call.in_progress", "mcp_call_arguments.done", "mcp_call.completed"):
        assert types.count(f"response.{name}") == 1, types


@pytest.mark.parametrize("path", ["/mcp", "/json/mcp"])
def test_answers_may_be_events_or_json_and_tokens_stay_in_the_vault(client: OpenAI, path: str) -> None:
    tool = server("add", path=path, authorization="{{secret:services_token}}")
    response = checked(
        client.responses.create(model="local/demo", input=ADD, tools=[tool], tool_choice=choose("add"))
    )
    call = next(item for item in response.output if isinstance(item, McpCall))
    assert call.status == "completed" and call.output is not None and call.output.lstrip("-").isdigit()
    assert TOKEN not in response.to_json()


def assert_own_results(response: Any) -> None:
    """The calls of `SEVERAL`, each with its result."""
    calls = [item for item in response.output if isinstance(item, McpCall)]
    assert [(call.status, call.error) for call in calls] == [("completed", None)] * 3, response
    results = [(call.name, json.loads(call.arguments), call.output) for call in calls]
    assert results == [
        ("slow", {"seconds": 1}, "after 1 s"),
        ("add", {"a": 1, "b": 2}, "3"),
        ("add", {"a": 10, "b": 20}, "30"),
    ]


@pytest.mark.parametrize("path", ["/mcp", "/whole/mcp"])
@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_one_turn_share_a_session_and_get_their_own_results(
    client: OpenAI, path: str, stream: bool
) -> None:
    request: Any = {"model": "local/demo", "input": SEVERAL, "tools": [server("slow", "add", path=path)]}
    if stream:
        events = checked_events(list(client.responses.create(**request, stream=True)))
        assert_own_results(events[-1].response)
    else:
        assert_own_results(checked(client.responses.create(**request)))


@pytest.mark.parametrize("path", ["/mcp", "/whole/mcp"])
def test_calls_that_are_approved_together_get_their_own_results(client: OpenAI, path: str) -> None:
    tool = server("slow", "add", path=path, require_approval="always")
    first = checked(client.responses.create(model="local/demo", input=SEVERAL, tools=[tool]))
    asked = [item for item in first.output if isinstance(item, McpApprovalRequest)]
    assert len(asked) == 3, first
    answers: list[Any] = [
        {"type": "mcp_approval_response", "approval_request_id": item.id, "approve": True} for item in asked
    ]
    history: list[Any] = [{"role": "user", "content": SEVERAL}, *(item.to_dict() for item in first.output)]
    approved = checked(client.responses.create(model="local/demo", input=[*history, *answers], tools=[tool]))
    assert_own_results(approved)


def test_errors_of_a_tool_are_typed(client: OpenAI) -> None:
    response = checked(
        client.responses.create(
            model="local/demo", input="Fail.", tools=[server("fail")], tool_choice=choose("fail")
        )
    )
    call = next(item for item in response.output if isinstance(item, McpCall))
    assert call.status == "failed" and call.error is not None
    assert call.error.type == "mcp_tool_execution_error"
    assert response.status == "completed"


def test_a_call_is_approved_in_the_next_request(client: OpenAI) -> None:
    tool = server("forget", require_approval="always")
    first = checked(
        client.responses.create(model="local/demo", input=FORGET, tools=[tool], tool_choice=choose("forget"))
    )
    asked = first.output[-1]
    assert isinstance(asked, McpApprovalRequest) and "Paris" in asked.arguments, first
    history: list[Any] = [{"role": "user", "content": FORGET}, *(item.to_dict() for item in first.output)]

    def answer(approve: bool) -> Any:
        response = {"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": approve}
        return checked(client.responses.create(model="local/demo", input=[*history, response], tools=[tool]))

    approved = answer(True)
    call = approved.output[0]
    assert isinstance(call, McpCall) and call.approval_request_id == asked.id, approved
    assert call.output == "Paris is forgotten" and "Paris is forgotten" in approved.output_text
    denied = answer(False)
    assert [item.type for item in denied.output] == ["message"]
    assert "does not allow" in denied.output_text


def test_a_server_that_is_not_granted_is_a_bad_request(client: OpenAI) -> None:
    tool = {**server("add"), "server_url": "https://elsewhere.test/mcp"}
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="local/demo", input=ADD, tools=[tool])
    assert "tools[0].server_url" in str(caught.value)


def test_a_server_that_refuses_has_an_error_in_its_list(client: OpenAI) -> None:
    tool = server("add", path="/json/mcp", authorization="wrong")
    with pytest.raises(openai.BadRequestError):
        # The workspace's own token would go there, and the client's cannot take its place.
        client.responses.create(model="local/demo", input=ADD, tools=[tool])

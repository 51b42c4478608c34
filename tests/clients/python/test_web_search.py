"""The client's own `web_search` behind models that know functions only."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import checked, checked_events
from openai import OpenAI
from openai.types.responses import ResponseFunctionWebSearch

QUESTION = "Do a web search for the query capital of Peru."


@pytest.mark.parametrize("tool_type", ["web_search", "web_search_preview"])
@pytest.mark.parametrize("model", ["local/demo", "house/chat", "house/anthropic"])
def test_a_search_is_a_call_that_the_client_knows(client: OpenAI, model: str, tool_type: str) -> None:
    tool: Any = {"type": tool_type, "search_context_size": "low"}
    # The client has a type for the older name only.
    choice: Any = {"type": "web_search_preview"}
    request: Any = {"model": model, "input": QUESTION, "tools": [tool], "tool_choice": choice}
    whole = checked(client.responses.create(**request))
    call, message = whole.output
    assert isinstance(call, ResponseFunctionWebSearch) and call.status == "completed"
    assert call.action.type == "search" and call.action.sources is not None
    assert [source.url for source in call.action.sources] == ["https://first.test/page", "https://second.test/page"]
    cited = {annotation.url for part in message.content for annotation in part.annotations}
    assert cited == {"https://first.test/page", "https://second.test/page"}
    for annotation in message.content[0].annotations:
        place = message.content[0].text[annotation.start_index : annotation.end_index]
        assert not place or annotation.url in place
    assert whole.usage.to_dict()["server_tool_use_details"]["web_search_requests"] == 1
    events = checked_events(list(client.responses.create(**request, stream=True)))
    searches = [event.type for event in events if event.type.startswith("response.web_search_call")]
    assert searches == [f"response.web_search_call.{state}" for state in ("in_progress", "searching", "completed")]

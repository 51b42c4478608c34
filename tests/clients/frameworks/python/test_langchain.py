"""LangChain through its OpenAI integration, with the Responses API."""

from __future__ import annotations

import json

import pytest
from conftest import BASE_URL, BOTH, GREETING, KEY, TIMEOUT_S
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel


class Report(BaseModel):
    """A weather report."""

    city: str
    mild: bool


@tool
def get_weather(city: str) -> str:
    """The current weather of a city."""
    return json.dumps({"city": city, "sky": "clear"})


@pytest.fixture
def chat(model: str) -> ChatOpenAI:
    """The chat model that LangChain users make."""
    return ChatOpenAI(
        model=model, base_url=BASE_URL, api_key=KEY, timeout=TIMEOUT_S, max_retries=0, use_responses_api=True
    )


def test_a_message_is_answered_with_its_usage(chat: ChatOpenAI) -> None:
    answer = chat.invoke(GREETING)
    assert GREETING in answer.text
    assert answer.usage_metadata["total_tokens"] > 0
    assert answer.response_metadata["status"] == "completed"


def test_a_message_is_answered_in_pieces(chat: ChatOpenAI) -> None:
    pieces = [piece.text for piece in chat.stream(GREETING)]
    assert len([piece for piece in pieces if piece]) > 1
    assert GREETING in "".join(pieces)


def test_structured_output_is_parsed(chat: ChatOpenAI) -> None:
    report = chat.with_structured_output(Report).invoke("Report on Paris.")
    assert isinstance(report, Report)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_agent_calls_a_tool_for_each_city(chat: ChatOpenAI, streamed: bool) -> None:
    agent = create_agent(chat, tools=[get_weather], system_prompt="Be brief.")
    question = {"messages": [{"role": "user", "content": BOTH}]}
    if streamed:
        state = list(agent.stream(question, stream_mode="values"))[-1]
    else:
        state = agent.invoke(question)
    results = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    assert sorted(json.loads(result.content)["city"] for result in results) == ["London", "Paris"]
    last = state["messages"][-1]
    assert isinstance(last, AIMessage) and '"sky": "clear"' in last.text and "Be brief." in last.text


def test_an_agent_goes_on_with_its_history(chat: ChatOpenAI) -> None:
    agent = create_agent(chat, tools=[get_weather])
    first = agent.invoke({"messages": [{"role": "user", "content": "What is the weather in Paris?"}]})
    history = [*first["messages"], {"role": "user", "content": "And what is the weather in Oslo?"}]
    second = agent.invoke({"messages": history})
    assert "Oslo" in second["messages"][-1].text


def test_texts_are_embedded() -> None:
    embeddings = OpenAIEmbeddings(
        model="house/embed", base_url=BASE_URL, api_key=KEY, check_embedding_ctx_length=False
    )
    assert [len(vector) for vector in embeddings.embed_documents(["one", "two"])] == [64, 64]

"""OpenRouter's own SDK, which refuses an answer for one member that is missing or of another type."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import BASE_URL, EMBEDDERS, KEY, MANAGER_KEY, MODELS
from openrouter import OpenRouter
from openrouter.utils import RetryConfig

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def sdk(key: str) -> OpenRouter:
    """By itself it would try again for an hour."""
    return OpenRouter(api_key=key, server_url=BASE_URL, retry_config=RetryConfig("none", None, False))


@pytest.fixture(scope="module")
def openrouter() -> Iterator[OpenRouter]:
    """With a key that asks models."""
    with sdk(KEY) as client:
        yield client


def test_an_answer_is_read_whole_and_streamed(openrouter: OpenRouter, model: str) -> None:
    whole = openrouter.beta.responses.send(model=model, input="Good morning.", tools=[WEATHER])
    assert whole.status == "completed" and whole.usage.total_tokens > 0
    with openrouter.beta.responses.send(model=model, input="Good morning.", stream=True) as events:
        types = [event.type for event in events]
    assert (types[0], types[-1]) == ("response.created", "response.completed")


def test_routing_metadata_is_read(openrouter: OpenRouter, model: str) -> None:
    asked = {"X-OpenRouter-Metadata": "enabled"}
    response = openrouter.beta.responses.send(model=model, input="Good morning.", http_headers=asked)
    told = response.openrouter_metadata
    assert [attempt.status for attempt in told.attempts] == [200]


def test_vectors_and_what_they_cost_are_read(openrouter: OpenRouter, embedder: str) -> None:
    response = openrouter.embeddings.generate(model=embedder, input="Good morning.")
    assert len(response.data[0].embedding) == EMBEDDERS[embedder]
    assert response.usage.prompt_tokens > 0


def test_the_list_of_models_is_read(openrouter: OpenRouter) -> None:
    listed = openrouter.models.list()
    models = {model.id: model for model in getattr(listed, "result", listed).data}
    assert {*MODELS, *EMBEDDERS} <= set(models)
    assert float(models["house/chat"].pricing.prompt) == pytest.approx(1e-6)


def test_a_key_can_read_its_description_and_balance(openrouter: OpenRouter) -> None:
    assert not openrouter.api_keys.get_current_key_metadata().data.is_management_key
    assert openrouter.credits.get_credits().data.total_usage >= 0


def test_keys_are_managed() -> None:
    with sdk(MANAGER_KEY) as manager:
        made = manager.api_keys.create(name="SDK", limit=2)
        assert made.key.startswith("cfd_") and made.data.limit_remaining == 2
        assert made.data.hash in [key.hash for key in manager.api_keys.list().data]
        manager.api_keys.delete(hash=made.data.hash)


def test_secrets_are_kept(openrouter: OpenRouter) -> None:
    stored = openrouter.vault.store_vault_secret(name="sdk_token", hosts=["Api.Example.com."], value="v")
    assert stored.data.hosts == ["api.example.com"]
    assert "sdk_token" in [secret.name for secret in openrouter.vault.list_vault_secrets().data]
    openrouter.vault.delete_vault_secret(name="sdk_token")

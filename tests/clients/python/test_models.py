"""The catalog."""

from __future__ import annotations

import pytest
from conftest import EMBEDDERS, MODELS
from openai import AsyncOpenAI, NotFoundError, OpenAI
from openai.types import Model


def test_the_list_has_every_model(client: OpenAI) -> None:
    models = client.models.list()
    assert {*MODELS, *EMBEDDERS} <= {model.id for model in models}
    for model in models:
        Model.model_validate(model.to_dict())


def test_a_model_is_read_by_its_id(client: OpenAI, model: str) -> None:
    found = client.models.retrieve(model)
    assert (found.id, found.object) == (model, "model")


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(NotFoundError) as caught:
        client.models.retrieve("house/nobody")
    assert "house/nobody" in str(caught.value)


@pytest.mark.anyio
async def test_the_asynchronous_client_lists(async_client: AsyncOpenAI) -> None:
    assert "local/demo" in [model.id async for model in async_client.models.list()]

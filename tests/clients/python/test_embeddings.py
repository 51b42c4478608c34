"""Vectors, as base64 (what the client asks for by itself) and as numbers."""

from __future__ import annotations

import pytest
from conftest import EMBEDDERS
from openai import AsyncOpenAI, BadRequestError, OpenAI

TEXTS = ["good morning", "guten Morgen", "早上好"]


def test_the_default_and_floats_are_the_same_vectors(client: OpenAI, embedder: str) -> None:
    # Without a format the client asks for base64 and decodes it.
    decoded = client.embeddings.create(model=embedder, input=TEXTS)
    floats = client.embeddings.create(model=embedder, input=TEXTS, encoding_format="float")
    assert [row.index for row in decoded.data] == [0, 1, 2]
    for one, other in zip(decoded.data, floats.data, strict=True):
        assert len(one.embedding) == EMBEDDERS[embedder]
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
    assert decoded.model == embedder
    assert decoded.usage.prompt_tokens > 0 and decoded.usage.total_tokens >= decoded.usage.prompt_tokens


def test_base64_asked_for_stays_base64(client: OpenAI, embedder: str) -> None:
    response = client.embeddings.create(model=embedder, input="good morning", encoding_format="base64")
    assert isinstance(response.data[0].embedding, str)


def test_dimensions_shorten_the_vectors(client: OpenAI, embedder: str) -> None:
    response = client.embeddings.create(model=embedder, input="good morning", dimensions=8)
    assert len(response.data[0].embedding) == 8


def test_dimensions_the_model_does_not_have_are_refused(client: OpenAI, embedder: str) -> None:
    with pytest.raises(BadRequestError):
        client.embeddings.create(model=embedder, input="good morning", dimensions=100_000)


def test_one_vector_depends_on_its_text_alone(client: OpenAI, embedder: str) -> None:
    alone = client.embeddings.create(model=embedder, input=TEXTS[1]).data[0].embedding
    among = client.embeddings.create(model=embedder, input=TEXTS).data[1].embedding
    assert alone == among != client.embeddings.create(model=embedder, input=TEXTS[2]).data[0].embedding


def test_as_many_inputs_as_the_original_takes(client: OpenAI, embedder: str) -> None:
    # OpenAI takes up to 2,048 inputs; libraries fill their batches to that.
    response = client.embeddings.create(model=embedder, input=[f"text {number}" for number in range(2048)])
    assert [row.index for row in response.data] == list(range(2048))


def test_tokens_are_input_too(client: OpenAI, embedder: str) -> None:
    response = client.embeddings.create(model=embedder, input=[[1, 2, 3], [4, 5]])
    assert len(response.data) == 2


@pytest.mark.anyio
async def test_the_asynchronous_client_embeds(async_client: AsyncOpenAI, embedder: str) -> None:
    response = await async_client.embeddings.create(model=embedder, input=TEXTS)
    assert [len(row.embedding) for row in response.data] == [EMBEDDERS[embedder]] * 3

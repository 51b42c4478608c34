"""The host under test, for agent frameworks. Started by ../../run.sh."""

from __future__ import annotations

import os

import pytest

BASE_URL = os.environ["COFFERDAM_URL"]
KEY = os.environ["COFFERDAM_KEY"]
TIMEOUT_S = 30.0
MODELS = ["local/demo", "house/responses", "house/chat", "house/anthropic"]

GREETING = "Good morning, host."
BOTH = "What is the weather in Paris and London?"


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> str:
    """Every model that answers: the demonstration model and one for each dialect."""
    return request.param


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of tests marked `anyio`."""
    return "asyncio"

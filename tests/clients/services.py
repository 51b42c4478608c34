"""Servers that tools of the host under test reach, on a free loopback port.

`/mcp` and `/whole/mcp` are the official SDK's MCP server with sessions, answering with
streams of events and with JSON; `/json/mcp` has no sessions and wants a token. `/search`
answers as SearXNG does. Prints its port and serves until it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

TOKEN = os.environ["UPSTREAM_SERVICES_KEY"]


def calculator() -> MCPServer:
    """A server with four tools."""
    server = MCPServer("calculator")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> int:
        """Adds two whole numbers."""
        return a + b

    @server.tool()
    async def slow(seconds: int) -> str:
        """Takes its time."""
        await asyncio.sleep(seconds)
        return f"after {seconds} s"

    @server.tool()
    def forget(city: str) -> str:
        """Forgets a city."""
        return f"{city} is forgotten"

    @server.tool()
    def fail(reason: str) -> str:
        """Fails, always."""
        raise ValueError(reason)

    return server


async def search(request: Request) -> JSONResponse:
    """Two results about whatever was asked for."""
    if request.query_params.get("format") != "json":
        return JSONResponse({"error": "forbidden"}, status_code=403)
    query = request.query_params["q"]
    results = [
        {"url": f"https://{name}.test/page", "title": f"About {query}", "content": f"The {name} page"}
        for name in ("first", "second")
    ]
    return JSONResponse({"query": query, "results": results})


def with_token(app):
    """Refuses requests without the token."""

    async def checked(scope, receive, send):
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and headers.get(b"authorization") != f"Bearer {TOKEN}".encode():
            await JSONResponse({"error": "unauthorized"}, status_code=401)(scope, receive, send)
            return
        await app(scope, receive, send)

    return checked


def application() -> Starlette:
    """All of it."""
    events, whole, stateless = calculator(), calculator(), calculator()
    event_app = events.streamable_http_app()
    whole_app = whole.streamable_http_app(json_response=True)
    stateless_app = stateless.streamable_http_app(json_response=True, stateless_http=True)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as running:
            for server in (events, whole, stateless):
                await running.enter_async_context(server.session_manager.run())
            yield

    routes = [
        Route("/search", search),
        Mount("/json", with_token(stateless_app)),
        Mount("/whole", whole_app),
        Mount("/", event_app),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def main() -> None:
    """Serves until it is ended."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(application(), log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()

"""A scripted provider on a free loopback port, for hosts under test.

It speaks OpenAI's Responses, Chat Completions and embeddings and Anthropic's
Messages, streamed and whole, and refuses what those would refuse. Prints its port
and serves until it is ended. The credentials it insists on come from the
environment; it never repeats one. `GET /state` tells what it has seen.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from scripted import chat, embeddings, messages, responses
from scripted.scenario import RETRY_AFTER_S, Refused
from scripted.wire import Reply, compact, in_fragments

BODY_BYTES_MAX = 4 << 20
# An endless answer ends after this time, in case the host never closes the connection.
ENDLESS_S_MAX = 20.0

KEYS = {
    "responses": os.environ["UPSTREAM_RESPONSES_KEY"],
    "chat": os.environ["UPSTREAM_CHAT_KEY"],
    "anthropic": os.environ["UPSTREAM_ANTHROPIC_KEY"],
}
# Path: what answers, how errors look, whose credentials are taken.
ROUTES = {
    "/v1/responses": (responses.answer, responses.error, ["responses"]),
    "/v1/chat/completions": (chat.answer, responses.error, ["chat"]),
    "/v1/messages": (messages.answer, messages.error, ["anthropic"]),
    "/v1/embeddings": (embeddings.answer, responses.error, ["responses", "chat"]),
}


class State:
    """What tests may ask about."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {"requests": 0, "abandoned": 0}

    def count(self, what: str) -> None:
        """One more."""
        with self._lock:
            self._counts[what] += 1

    def read(self) -> dict[str, int]:
        """All counts."""
        with self._lock:
            return dict(self._counts)


STATE = State()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, *_: Any) -> None:
        """Logs nothing: requests contain secrets."""

    def do_GET(self) -> None:
        """Serves the counts."""
        if self.path != "/state":
            return self.send(Reply(status=404, body={}))
        return self.send(Reply(body=STATE.read()))

    def do_POST(self) -> None:
        """Answers a request of a dialect."""
        route = ROUTES.get(self.path)
        body = self.rfile.read(min(int(self.headers.get("content-length", 0)), BODY_BYTES_MAX))
        if route is None:
            return self.send(Reply(status=404, body={"error": {"message": "no such path"}}))
        STATE.count("requests")
        answer, error, owners = route
        try:
            self.check(body, owners)
            return self.send(answer(json.loads(body)))
        except Refused as refused:
            headers = {"retry-after": str(RETRY_AFTER_S)} if refused.status == 429 else {}
            return self.send(Reply(status=refused.status, body=error(refused), headers=headers))
        except (KeyError, TypeError, ValueError) as malformed:
            refused = Refused(400, f"The request is not understood: {type(malformed).__name__} {malformed}")
            return self.send(Reply(status=400, body=error(refused)))

    def check(self, body: bytes, owners: list[str]) -> None:
        """The right credential in the right header, and none that belongs elsewhere."""
        if owners == ["anthropic"]:
            given, foreign = self.headers.get("x-api-key", ""), self.headers.get("authorization")
            if self.headers.get("anthropic-version") not in messages.VERSIONS:
                raise Refused(400, "anthropic-version: header is required")
        else:
            given = self.headers.get("authorization", "").removeprefix("Bearer ")
            foreign = self.headers.get("x-api-key")
        if not any(hmac.compare_digest(given.encode(), KEYS[owner].encode()) for owner in owners):
            raise Refused(401, "Incorrect API key provided.")
        if foreign is not None or self.headers.get("cookie") is not None:
            raise Refused(400, "A credential arrived in a header of another dialect.")
        if b"cfd_" in bytes(self.headers) + body:
            raise Refused(400, "A key of the host's own clients arrived.")

    def send(self, reply: Reply) -> None:
        """Writes an answer."""
        if reply.ends == "hang":
            self.hang()
            return
        if reply.events is None:
            time.sleep(reply.pause_s)
        if reply.events is not None:
            self.stream(reply)
            return
        body = compact(reply.body)
        sent = body[: len(body) // 2] if reply.ends else body
        self.send_response(reply.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body) if reply.ends == "cut" else len(sent)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)
        self.close_connection = reply.ends != ""

    def stream(self, reply: Reply) -> None:
        """Writes server-sent events in fragments."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        time.sleep(reply.pause_s)
        started = time.monotonic()
        try:
            for fragment in in_fragments(reply.events or ()):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(fragment), fragment))
                if time.monotonic() - started > ENDLESS_S_MAX:
                    break
            if reply.ends != "cut":
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            STATE.count("abandoned")
            self.close_connection = True
        if reply.ends == "cut":
            self.close_connection = True

    def hang(self) -> None:
        """Says nothing until the other side has gone."""
        self.close_connection = True
        self.connection.settimeout(ENDLESS_S_MAX)
        try:
            while self.connection.recv(1024):
                pass
        except TimeoutError:
            return
        except OSError:
            pass
        STATE.count("abandoned")


class Server(ThreadingHTTPServer):
    """Sends every fragment at once."""

    daemon_threads = True

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accepts a connection."""
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, address


def main() -> None:
    """Serves."""
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

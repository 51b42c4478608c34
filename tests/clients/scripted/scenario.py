"""What the scripted model answers, independent of the dialect that encodes it.

A user message that begins with `script:` names a behaviour (see `SCRIPTS`).
Everything else follows from the request: functions are called once per city that
the message names, results and texts are quoted, a schema is filled, a limit cuts.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

CITIES = ("Paris", "London", "Oslo", "Tokyo", "Lima")
REFUSAL = "I will not help with that."
REASONING = "The message is short, so the answer is short as well."
LONG = "One word follows another until nobody is left who listens to them"

# What a message may ask for: how an answer breaks, or the error it is instead.
SCRIPTS = {
    "refuse": {"refusal": REFUSAL},
    "fail": {"breaks": "fail"},
    "error event": {"breaks": "event"},
    "cut": {"breaks": "cut"},
    "stop short": {"breaks": "short"},
    "endless": {"breaks": "endless"},
    "hang": {"breaks": "hang"},
}
ERRORS = {
    400: "The scripted provider does not like this request.",
    401: "Incorrect API key provided.",
    404: "The scripted provider has no such model.",
    429: "Too many requests.",
    500: "The scripted provider has a bug.",
    503: "Try again later.",
}
RETRY_AFTER_S = 7


class Refused(Exception):
    """The request is answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass
class Tool:
    """A function the model may call, or a custom tool that takes plain text."""

    name: str
    schema: dict[str, Any]
    custom: bool = False


@dataclass
class Turn:
    """A request, as far as it decides the answer."""

    text: str = ""
    system: str = ""
    # What came with the last message of the user: "image", "file".
    attachments: list[str] = field(default_factory=list)
    # Outputs of functions since that message.
    results: list[str] = field(default_factory=list)
    tools: list[Tool] = field(default_factory=list)
    # "auto", "none", "required", or the name of a function.
    choice: str = "auto"
    parallel: bool = True
    schema: dict[str, Any] | None = None
    json_object: bool = False
    limit: int | None = None
    reasons: bool = False


@dataclass
class Call:
    """A function call; `arguments` is JSON text, or the input of a custom tool."""

    name: str
    arguments: str
    custom: bool = False


@dataclass
class Answer:
    """What is said, and how it goes wrong."""

    text: str = ""
    refusal: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    # The output limit cut the text.
    is_cut: bool = False
    # How it breaks when half of the text is sent: "fail", "event", "cut", "short",
    # "endless"; or "hang" before anything is.
    breaks: str = ""
    # Seconds of silence before the first word.
    pause_s: int = 0


def answer(turn: Turn) -> Answer:
    """The answer to a request."""
    if "Write only the summary" in turn.text:
        return Answer(text="The user wants one line in a file.")
    # Some dialects join what the client said before it.
    if turn.text.rstrip().endswith("script: agent"):
        return agent(turn)
    if turn.text.startswith("script:"):
        return scripted(turn.text.removeprefix("script:").strip())
    made = Answer(reasoning=REASONING if turn.reasons else "")
    made.calls = calls(turn)
    if made.calls:
        return made
    if turn.schema is not None:
        made.text = json.dumps(fill(turn.schema, turn.schema, turn.text), ensure_ascii=False)
    elif turn.json_object:
        made.text = json.dumps({"said": turn.text}, ensure_ascii=False)
    else:
        made.text = prose(turn)
    words = pieces(made.text)
    if turn.limit is not None and len(words) > turn.limit:
        made.text = "".join(words[: turn.limit])
        made.is_cut = True
    return made


def agent(turn: Turn) -> Answer:
    """A coding agent's work, one call a turn: makes a file, reads it, adds with a tool of the client's own."""

    def named(end: str) -> Tool | None:
        return next((tool for tool in turn.tools if tool.name.endswith(end)), None)

    steps = [
        (named("apply_patch"), {"input": "*** Begin Patch\n*** Add File: made.txt\n+one line\n*** End Patch\n"}),
        (named("exec_command"), {"cmd": "cat made.txt"}),
        (named("tool_search"), {"query": "add two numbers", "limit": 4}),
        (named("__add"), {"a": 19, "b": 23}),
    ]
    if steps[0][0] is None:
        steps[0] = (named("exec_command"), {"cmd": "echo one line > made.txt"})
    offered = [(tool, arguments) for tool, arguments in steps if tool is not None]
    done = len(turn.results)
    if done >= len(offered):
        return Answer(text=prose(turn))
    tool, arguments = offered[done]
    if tool.custom:
        return Answer(calls=[Call(tool.name, arguments["input"], custom=True)])
    return Answer(calls=[Call(tool.name, json.dumps(arguments))])


def scripted(name: str) -> Answer:
    """The behaviour of this name."""
    status = re.fullmatch(r"error (\d+)", name)
    if status:
        number = int(status[1])
        raise Refused(number, ERRORS[number])
    pause = re.fullmatch(r"wait (\d+) s", name)
    if pause:
        return Answer(text="Here I am.", pause_s=int(pause[1]))
    behaviour = SCRIPTS.get(name)
    if behaviour is None:
        raise Refused(400, f"There is no script {name!r}.")
    made = Answer(**behaviour)
    if made.breaks:
        made.text = LONG
    return made


def calls(turn: Turn) -> list[Call]:
    """The calls a message asks for: one per city, and one if it has to be."""
    if turn.results or not turn.tools or turn.choice == "none":
        return []
    named = [tool for tool in turn.tools if tool.name == turn.choice]
    tool = named[0] if named else turn.tools[0]
    cities = [city for city in CITIES if city in turn.text]
    if not cities and turn.choice == "auto":
        return []
    if not turn.parallel or not cities:
        cities = cities[:1] or ["nowhere"]
    if tool.custom:
        return [Call(tool.name, city, custom=True) for city in cities]
    return [Call(tool.name, json.dumps(fill(tool.schema, tool.schema, city))) for city in cities]


def prose(turn: Turn) -> str:
    """Repeats what was said."""
    said = [f"The function answered: {result}" for result in turn.results]
    said.append(f"You said: “{turn.text}”")
    if turn.attachments:
        said.append(f"With it came: {', '.join(turn.attachments)}.")
    if turn.system:
        said.append(f"My instructions are: “{turn.system}”")
    return " ".join(said)


def fill(schema: dict[str, Any], root: dict[str, Any], text: str) -> Any:
    """A value of this JSON Schema; strings are `text` where nothing else is asked."""
    if "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return fill(target, root, text)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return fill(schema[key][0], root, text)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: fill(value, root, text) for name, value in properties.items()}
    if kind == "array":
        return [fill(schema.get("items", {}), root, text)]
    return {"integer": 7, "number": 1.5, "boolean": True, "null": None}.get(kind, text)


def pieces(text: str) -> list[str]:
    """Text as a model streams it: one piece per word, its space in front."""
    return re.findall(r"\s*\S+|\s+$", text)


def certain(piece: str) -> dict[str, Any]:
    """A token's entry in a list of probabilities: the script leaves no doubt."""
    return {"token": piece, "bytes": list(piece.encode()), "logprob": 0.0, "top_logprobs": []}


def tokens(*texts: str) -> int:
    """A plain count of words; never zero, as no request is."""
    return max(1, sum(len(text.split()) for text in texts))

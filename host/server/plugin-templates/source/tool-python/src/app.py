"""The server tool `{{type}}`: writes a text backwards."""

import json
import re
from itertools import accumulate

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.tools import Function, Output, ToolError_InvalidArguments

PARAMETERS = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "The text"}},
    "required": ["text"],
}

# json.loads needs stack for each level. Deeper JSON would end the call.
LEVELS_MAX = 200


def levels(text):
    """How deep arrays and objects of JSON are nested."""
    outside = re.sub(rb'"[^"\\]*(?:\\.[^"\\]*)*"', b"", text, flags=re.DOTALL)
    steps = (1 if bracket in b"[{" else -1 for bracket in re.findall(rb"[][{}]", outside))
    return max(accumulate(steps), default=0)


class Tools(exports.Tools):
    def functions(self, settings, context):
        """The functions that the model may call. `settings` are the `parameters` of the request's entry."""
        return [Function("backwards", "Writes a text backwards.", json.dumps(PARAMETERS).encode())]

    def invoke(self, function, arguments, settings, context):
        """One call of a model."""
        if levels(arguments) > LEVELS_MAX:
            raise Err(ToolError_InvalidArguments(f"the arguments have more than {LEVELS_MAX} levels"))
        try:
            text = json.loads(arguments).get("text")
        except (ValueError, AttributeError):
            text = None
        if not isinstance(text, str):
            raise Err(ToolError_InvalidArguments("`text` must be a string"))
        backwards = text[::-1]
        item = json.dumps({"backwards": backwards}).encode()
        return Output(for_model=backwards, item=item, annotations=[], cost_pico=0)

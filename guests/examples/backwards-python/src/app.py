"""The server tool `backwards_python`: writes a text backwards."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.tools import Function, Output, ToolError_InvalidArguments

PARAMETERS = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "The text"}},
    "required": ["text"],
}


class Tools(exports.Tools):
    def functions(self, settings, context):
        """The functions that the model may call. `settings` are the `parameters` of the request's entry."""
        return [Function("backwards", "Writes a text backwards.", json.dumps(PARAMETERS).encode())]

    def invoke(self, function, arguments, settings, context):
        """One call of a model."""
        try:
            text = json.loads(arguments).get("text")
        except (ValueError, AttributeError):
            text = None
        if not isinstance(text, str):
            raise Err(ToolError_InvalidArguments("`text` must be a string"))
        backwards = text[::-1]
        item = json.dumps({"backwards": backwards}).encode()
        return Output(for_model=backwards, item=item, annotations=[], cost_pico=0)

/* The server tool `backwards_c`: writes a text backwards. */

#include "cofferdam.h"

/* The functions that the model may call. `settings` are the `parameters` of the request's entry for this tool. */
cfd_functions cfd_list_functions(cfd_bytes settings, const cfd_context *context) {
  (void)settings;
  (void)context;
  static cfd_function functions[1];
  functions[0].name = cfd_text("backwards");
  functions[0].description = cfd_text("Writes a text backwards.");
  functions[0].parameters = cfd_text(
      "{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\",\"description\":\"The text\"}},"
      "\"required\":[\"text\"]}");
  return (cfd_functions){functions, 1, 0};
}

/* The text backwards, character by character. It must be UTF-8. */
static cfd_bytes reversed(cfd_bytes text) {
  cfd_bytes out = {cfd_allocate(text.length), text.length};
  size_t to = text.length;
  for (size_t from = 0; from < text.length;) {
    size_t end = from + 1;
    while (end < text.length && (text.at[end] & 0xC0) == 0x80) end++;
    to -= end - from;
    cfd_copy(out.at + to, text.at + from, end - from);
    from = end;
  }
  return out;
}

/* One call of a model. */
cfd_result cfd_call(cfd_bytes function, cfd_bytes arguments, cfd_bytes settings, const cfd_context *context) {
  (void)function;
  (void)settings;
  (void)context;
  cfd_bytes raw, text;
  if (!cfd_json_member(arguments, "text", &raw) || !cfd_json_string(raw, &text)) {
    return cfd_fail(CFD_INVALID_ARGUMENTS, "`text` must be a string");
  }
  cfd_bytes backwards = reversed(text);
  cfd_bytes item = cfd_join(cfd_text("{\"backwards\":"), cfd_json_quote(backwards), cfd_text("}"));
  return cfd_done(backwards, item);
}

/*
 * The interface `tools` of the contract in C, by the canonical ABI of the component model, and what a tool needs
 * beside it: memory, text and JSON. Include it in one file. That file defines cfd_list_functions and cfd_call.
 *
 * The host makes a new instance for each call, so memory is never given back.
 */
#ifndef COFFERDAM_H
#define COFFERDAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a known length: text in UTF-8, or JSON. */
typedef struct {
  uint8_t *at;
  size_t length;
} cfd_bytes;

typedef struct {
  cfd_bytes request_id;
  cfd_bytes workspace;
  uint64_t now_ms;
} cfd_context;

typedef struct {
  cfd_bytes name;        /* letters, digits and underscores, at most 64 */
  cfd_bytes description; /* what the model reads */
  cfd_bytes parameters;  /* a JSON Schema object */
} cfd_function;

typedef struct {
  cfd_function *at;
  size_t length;
  const char *invalid_settings; /* why the request is refused; 0 where the settings are good */
} cfd_functions;

/* Who is at fault for a call without a result. */
typedef enum { CFD_INVALID_SETTINGS = 0, CFD_INVALID_ARGUMENTS = 1, CFD_FAILED = 2 } cfd_fault;

/* The result of a call in the form of the contract: result<output, tool-error>. */
typedef union {
  struct {
    uint8_t is_error;
    uint8_t padding[7];
    cfd_bytes for_model;
    cfd_bytes item;
    cfd_bytes annotations;
    uint64_t cost_pico;
  } done;
  struct {
    uint8_t is_error;
    uint8_t padding[7];
    uint8_t fault;
    uint8_t more_padding[3];
    cfd_bytes message;
  } failed;
} cfd_result;

/*
 * The header has no imports. Declare the functions that you use, by the canonical ABI: a result longer than a number is
 * written to where the last parameter points.
 *
 *   __attribute__((import_module("cofferdam:plugin/random@0.1.0"), import_name("bytes")))
 *   void random_bytes(uint32_t count, cfd_bytes *out);
 */

/* What the tool defines. */
cfd_functions cfd_list_functions(cfd_bytes settings, const cfd_context *context);
cfd_result cfd_call(cfd_bytes function, cfd_bytes arguments, cfd_bytes settings, const cfd_context *context);

/* ---- memory ---- */

#define CFD_PAGE 65536

extern uint8_t __heap_base;
static uintptr_t cfd_free_at;

/* Bytes that last to the end of the call, aligned to 8. Ends the call when the plugin's memory is used up. */
static void *cfd_allocate(size_t length) {
  if (cfd_free_at == 0) cfd_free_at = (uintptr_t)&__heap_base;
  uintptr_t start = (cfd_free_at + 7) & ~(uintptr_t)7;
  if (length > UINT32_MAX - start) __builtin_trap();
  uintptr_t end = start + length;
  size_t pages = __builtin_wasm_memory_size(0);
  if (end > (uint64_t)pages * CFD_PAGE) {
    size_t more = (end - pages * CFD_PAGE + CFD_PAGE - 1) / CFD_PAGE;
    if (__builtin_wasm_memory_grow(0, more) == (size_t)-1) __builtin_trap();
  }
  cfd_free_at = end;
  return (void *)start;
}

static void cfd_copy(uint8_t *to, const uint8_t *from, size_t length) {
  for (size_t i = 0; i < length; i++) to[i] = from[i];
}

/* ---- text ---- */

static inline cfd_bytes cfd_text(const char *text) {
  size_t length = 0;
  while (text[length] != 0) length++;
  return (cfd_bytes){(uint8_t *)text, length};
}

/* Three texts as one. */
static inline cfd_bytes cfd_join(cfd_bytes first, cfd_bytes second, cfd_bytes third) {
  cfd_bytes out = {cfd_allocate(first.length + second.length + third.length), 0};
  cfd_bytes parts[3] = {first, second, third};
  for (size_t i = 0; i < 3; i++) {
    cfd_copy(out.at + out.length, parts[i].at, parts[i].length);
    out.length += parts[i].length;
  }
  return out;
}

/* ---- results ---- */

static inline cfd_result cfd_done(cfd_bytes for_model, cfd_bytes item) {
  cfd_result result = {.done = {0}};
  result.done.for_model = for_model;
  result.done.item = item;
  return result;
}

static inline cfd_result cfd_fail(cfd_fault fault, const char *message) {
  cfd_result result = {.failed = {0}};
  result.failed.is_error = 1;
  result.failed.fault = (uint8_t)fault;
  result.failed.message = cfd_text(message);
  return result;
}

/* ---- JSON ---- */

static size_t cfd_skip_space(cfd_bytes json, size_t at) {
  while (at < json.length && (json.at[at] == ' ' || json.at[at] == '\n' || json.at[at] == '\r' || json.at[at] == '\t'))
    at++;
  return at;
}

/* The place behind the string that begins at `at`; 0 if there is none. */
static size_t cfd_string_end(cfd_bytes json, size_t at) {
  if (at >= json.length || json.at[at] != '"') return 0;
  for (at++; at < json.length; at++) {
    if (json.at[at] == '"') return at + 1;
    if (json.at[at] == '\\') at++;
  }
  return 0;
}

/* The place behind the value that begins at `at`; 0 if it does not end. */
static size_t cfd_value_end(cfd_bytes json, size_t at) {
  size_t depth = 0;
  while (at < json.length) {
    uint8_t byte = json.at[at];
    if (byte == '"') {
      at = cfd_string_end(json, at);
      if (at == 0) return 0;
      if (depth == 0) return at;
      continue;
    }
    bool closes = byte == '}' || byte == ']';
    if ((closes || byte == ',') && depth == 0) return at;
    if (byte == '{' || byte == '[') depth++;
    if (closes) depth--;
    at++;
    if (closes && depth == 0) return at;
  }
  return depth == 0 ? at : 0;
}

static bool cfd_is(cfd_bytes text, const char *other) {
  cfd_bytes wanted = cfd_text(other);
  if (text.length != wanted.length) return false;
  for (size_t i = 0; i < text.length; i++)
    if (text.at[i] != wanted.at[i]) return false;
  return true;
}

/* Finds the member of an object; its value as JSON. Member names are compared as they are written. */
static inline bool cfd_json_member(cfd_bytes object, const char *name, cfd_bytes *value) {
  size_t at = cfd_skip_space(object, 0);
  if (at >= object.length || object.at[at] != '{') return false;
  at = cfd_skip_space(object, at + 1);
  while (at < object.length && object.at[at] == '"') {
    size_t end = cfd_string_end(object, at);
    if (end == 0) return false;
    cfd_bytes key = {object.at + at + 1, end - at - 2};
    at = cfd_skip_space(object, end);
    if (at >= object.length || object.at[at] != ':') return false;
    at = cfd_skip_space(object, at + 1);
    end = cfd_value_end(object, at);
    if (end == 0) return false;
    if (cfd_is(key, name)) {
      *value = (cfd_bytes){object.at + at, end - at};
      return true;
    }
    at = cfd_skip_space(object, end);
    if (at >= object.length || object.at[at] != ',') return false;
    at = cfd_skip_space(object, at + 1);
  }
  return false;
}

static bool cfd_hex(cfd_bytes json, size_t at, uint32_t *code) {
  if (at + 4 > json.length) return false;
  *code = 0;
  for (size_t i = at; i < at + 4; i++) {
    uint8_t digit = json.at[i];
    uint32_t value = digit >= '0' && digit <= '9'   ? (uint32_t)(digit - '0')
                     : digit >= 'a' && digit <= 'f' ? (uint32_t)(digit - 'a' + 10)
                     : digit >= 'A' && digit <= 'F' ? (uint32_t)(digit - 'A' + 10)
                                                    : 16;
    if (value == 16) return false;
    *code = *code * 16 + value;
  }
  return true;
}

/* Appends a character in UTF-8. */
static void cfd_put(cfd_bytes *out, uint32_t code) {
  uint8_t *at = out->at + out->length;
  if (code < 0x80) {
    at[0] = (uint8_t)code;
    out->length += 1;
  } else if (code < 0x800) {
    at[0] = (uint8_t)(0xC0 | code >> 6);
    at[1] = (uint8_t)(0x80 | (code & 0x3F));
    out->length += 2;
  } else if (code < 0x10000) {
    at[0] = (uint8_t)(0xE0 | code >> 12);
    at[1] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
    at[2] = (uint8_t)(0x80 | (code & 0x3F));
    out->length += 3;
  } else {
    at[0] = (uint8_t)(0xF0 | code >> 18);
    at[1] = (uint8_t)(0x80 | (code >> 12 & 0x3F));
    at[2] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
    at[3] = (uint8_t)(0x80 | (code & 0x3F));
    out->length += 4;
  }
}

/* The character of `\uXXXX` whose digits begin at `*at`, with the second half of a pair if one follows. */
static uint32_t cfd_escaped(cfd_bytes json, size_t *at) {
  uint32_t code, low;
  if (!cfd_hex(json, *at, &code)) return UINT32_MAX;
  *at += 4;
  bool is_high = code >= 0xD800 && code < 0xDC00;
  if (is_high && *at + 6 <= json.length && json.at[*at] == '\\' && json.at[*at + 1] == 'u' &&
      cfd_hex(json, *at + 2, &low) && low >= 0xDC00 && low < 0xE000) {
    *at += 6;
    return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  /* Half of a pair is no character. */
  return code >= 0xD800 && code < 0xE000 ? 0xFFFD : code;
}

/* Whether a text is UTF-8. What is given to the host as text must be. */
static inline bool cfd_is_utf8(cfd_bytes text) {
  for (size_t at = 0; at < text.length;) {
    uint8_t head = text.at[at];
    size_t length = head < 0x80 ? 1 : head < 0xE0 ? 2 : head < 0xF0 ? 3 : 4;
    if ((head >= 0x80 && head < 0xC2) || head > 0xF4 || length > text.length - at) return false;
    uint32_t code = length == 1 ? head : head & (0xFFu >> (length + 1));
    for (size_t next = 1; next < length; next++) {
      if ((text.at[at + next] & 0xC0) != 0x80) return false;
      code = code << 6 | (text.at[at + next] & 0x3F);
    }
    bool is_short = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    if (is_short || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) return false;
    at += length;
  }
  return true;
}

/* Reads a JSON string. */
static inline bool cfd_json_string(cfd_bytes json, cfd_bytes *text) {
  size_t end = cfd_string_end(json, 0);
  if (end == 0 || !cfd_is_utf8((cfd_bytes){json.at, end})) return false;
  /* No escape is shorter than its character. */
  *text = (cfd_bytes){cfd_allocate(end), 0};
  for (size_t at = 1; at + 1 < end;) {
    uint8_t byte = json.at[at++];
    if (byte != '\\') {
      text->at[text->length++] = byte;
      continue;
    }
    byte = json.at[at++];
    uint32_t code = byte == 'n'   ? '\n'
                    : byte == 't' ? '\t'
                    : byte == 'r' ? '\r'
                    : byte == 'b' ? '\b'
                    : byte == 'f' ? '\f'
                    : byte == 'u' ? cfd_escaped(json, &at)
                                  : byte;
    if (code == UINT32_MAX) return false;
    cfd_put(text, code);
  }
  return true;
}

/* A text as a JSON string. */
static inline cfd_bytes cfd_json_quote(cfd_bytes text) {
  static const char digits[] = "0123456789abcdef";
  if (text.length > UINT32_MAX / 8) __builtin_trap();
  cfd_bytes out = {cfd_allocate(text.length * 6 + 2), 0};
  out.at[out.length++] = '"';
  for (size_t i = 0; i < text.length; i++) {
    uint8_t byte = text.at[i];
    if (byte < 0x20) {
      const uint8_t escape[6] = {'\\', 'u', '0', '0', (uint8_t)digits[byte >> 4], (uint8_t)digits[byte & 15]};
      cfd_copy(out.at + out.length, escape, 6);
      out.length += 6;
      continue;
    }
    if (byte == '"' || byte == '\\') out.at[out.length++] = '\\';
    out.at[out.length++] = byte;
  }
  out.at[out.length++] = '"';
  return out;
}

/* ---- the canonical ABI ---- */

/* The host asks for memory for what it passes in. */
__attribute__((export_name("cabi_realloc"))) void *cfd_realloc(void *old, size_t old_length, size_t align,
                                                                size_t length) {
  (void)align;
  void *grown = cfd_allocate(length);
  if (old != 0) cfd_copy(grown, old, old_length < length ? old_length : length);
  return grown;
}

__attribute__((export_name("cofferdam:plugin/tools@0.1.0#functions"))) void *cfd_export_functions(
    uint8_t *settings, size_t settings_length, uint8_t *request_id, size_t request_id_length, uint8_t *workspace,
    size_t workspace_length, uint64_t now_ms) {
  cfd_context context = {{request_id, request_id_length}, {workspace, workspace_length}, now_ms};
  /* result<list<function>, tool-error> */
  static union {
    struct {
      uint32_t is_error;
      cfd_function *at;
      size_t length;
      uint32_t space;
    } done;
    struct {
      uint32_t is_error;
      uint32_t fault;
      cfd_bytes message;
    } failed;
  } answer;
  cfd_functions list = cfd_list_functions((cfd_bytes){settings, settings_length}, &context);
  if (list.invalid_settings != 0) {
    answer.failed.is_error = 1;
    answer.failed.fault = CFD_INVALID_SETTINGS;
    answer.failed.message = cfd_text(list.invalid_settings);
    return &answer;
  }
  answer.done.is_error = 0;
  answer.done.at = list.at;
  answer.done.length = list.length;
  return &answer;
}

__attribute__((export_name("cofferdam:plugin/tools@0.1.0#invoke"))) void *cfd_export_invoke(
    uint8_t *function, size_t function_length, uint8_t *arguments, size_t arguments_length, uint8_t *settings,
    size_t settings_length, uint8_t *request_id, size_t request_id_length, uint8_t *workspace,
    size_t workspace_length, uint64_t now_ms) {
  cfd_context context = {{request_id, request_id_length}, {workspace, workspace_length}, now_ms};
  static cfd_result answer;
  answer = cfd_call((cfd_bytes){function, function_length}, (cfd_bytes){arguments, arguments_length},
                    (cfd_bytes){settings, settings_length}, &context);
  return &answer;
}

/* The compiler may call these for copies and zeroes of its own. */
void *memcpy(void *to, const void *from, size_t length) {
  for (size_t i = 0; i < length; i++) ((volatile uint8_t *)to)[i] = ((const uint8_t *)from)[i];
  return to;
}

void *memset(void *to, int value, size_t length) {
  for (size_t i = 0; i < length; i++) ((volatile uint8_t *)to)[i] = (uint8_t)value;
  return to;
}

#endif

// UTF-8 and JSON, and log lines.

import log from 'cofferdam:plugin/log@0.1.0';

// A value as JSON in UTF-8, as the contract's type `json` wants it.
export function toJson(value) {
  return encode(JSON.stringify(value));
}

// JSON.parse needs stack for each level. Deeper JSON would end the call.
const LEVELS_MAX = 200;

// The value of JSON in UTF-8. Throws invalid-arguments if it is not JSON or too deep.
export function fromJson(bytes) {
  if (levels(bytes) > LEVELS_MAX) {
    throw { tag: 'invalid-arguments', val: `the arguments have more than ${LEVELS_MAX} levels` };
  }
  try {
    return JSON.parse(decode(bytes));
  } catch {
    throw { tag: 'invalid-arguments', val: 'the arguments are not JSON' };
  }
}

// How deep arrays and objects are nested.
function levels(bytes) {
  let level = 0;
  let deepest = 0;
  let inString = false;
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (byte === 0x22) {
      inString = !inString;
    } else if (inString) {
      // What follows a backslash does not end the string.
      at += byte === 0x5c ? 1 : 0;
    } else if (byte === 0x5b || byte === 0x7b) {
      level += 1;
      deepest = Math.max(deepest, level);
    } else if (byte === 0x5d || byte === 0x7d) {
      level -= 1;
    }
  }
  return deepest;
}

// Writes a line into the operator's log: level is debug, info, warn or error.
export function write(level, message) {
  log.write(level, message);
}

export function encode(text) {
  const bytes = [];
  for (const character of text) {
    const code = character.codePointAt(0);
    if (code < 0x80) {
      bytes.push(code);
    } else if (code < 0x800) {
      bytes.push(0xc0 | (code >> 6), tail(code));
    } else if (code < 0x10000) {
      // Half of a surrogate pair has no UTF-8.
      const whole = code >= 0xd800 && code < 0xe000 ? 0xfffd : code;
      bytes.push(0xe0 | (whole >> 12), tail(whole >> 6), tail(whole));
    } else {
      bytes.push(0xf0 | (code >> 18), tail(code >> 12), tail(code >> 6), tail(code));
    }
  }
  return new Uint8Array(bytes);
}

export function decode(bytes) {
  const pieces = [];
  for (let at = 0; at < bytes.length; ) {
    const head = bytes[at];
    const length = head < 0x80 ? 1 : head < 0xe0 ? 2 : head < 0xf0 ? 3 : 4;
    let code = length === 1 ? head : head & (0xff >> (length + 1));
    for (let next = 1; next < length; next += 1) {
      code = (code << 6) | (bytes[at + next] & 0x3f);
    }
    pieces.push(code <= 0x10ffff ? String.fromCodePoint(code) : '\ufffd');
    at += length;
  }
  return pieces.join('');
}

function tail(code) {
  return 0x80 | (code & 0x3f);
}

// Follows what happens in the host: events over one open answer, or a question every few seconds
// where the host has no events. Closed while the page is hidden.

import { ApiError, ask, stream } from "./api.js";

const POLL_MS = 5000;
// Questions between two tries to follow a host that has too many consoles open.
const POLLS = 6;
// The host tells its state each second: a connection that is silent for longer is dead.
const SILENCE_MS = 5000;
const HEAD_MS = 15_000;
const WAIT_MS_MAX = 15_000;
const LINE_MAX = 1 << 20;

// Reads server-sent events and calls `each(event, data)`.
export async function readEvents(answer, each) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = "message";
  let data = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    if (rest.length > LINE_MAX) throw new Error("a line of the events is too long");
    for (const line of lines.map((it) => it.replace(/\r$/, ""))) {
      if (line === "" && data.length) each(event, data.join("\n"));
      if (line === "") [event, data] = ["message", []];
      else if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
    }
  }
}

// `told` gets `state`, `request`, `lost`, `reload`; `connected` gets `{ ok, wait, error, isCrowded }`, where `wait` is
// the seconds to the next try; `refused` gets the error that signing in again mends.
export function follow({ told, connected, refused }) {
  let stop = null;
  let waitMs = 1000;
  let timer = 0;
  let polls = 0;
  let isCrowded = false;

  async function run() {
    stop = new AbortController();
    const { signal } = stop;
    try {
      if (polls > 0) await poll(signal);
      else await listen(signal);
      next(polls > 0 ? POLL_MS : 1000);
    } catch (error) {
      if (!signal.aborted) failed(error);
    }
  }

  function failed(error) {
    const status = error instanceof ApiError ? error.status : 0;
    if (status === 401) return refused(error);
    // A 503 of the host itself: as many consoles as it takes are open. One of a proxy has another type.
    const isFull = status === 503 && error.type === "unavailable";
    if (polls === 0 && (status === 404 || isFull)) {
      isCrowded = isFull;
      polls = isFull ? POLLS : Infinity;
      return next(0);
    }
    if (status === 429 || status === 503) {
      connected({ ok: false, wait: error.waitMs / 1000, error });
      return next(error.waitMs);
    }
    connected({ ok: false, wait: Math.round(waitMs / 1000) });
    next(waitMs);
    waitMs = Math.min(waitMs * 2, WAIT_MS_MAX);
  }

  function next(ms) {
    clearTimeout(timer);
    timer = setTimeout(run, ms);
  }

  function ok() {
    waitMs = 1000;
    connected({ ok: true, isCrowded });
  }

  async function listen(signal) {
    const dead = new AbortController();
    let silence = 0;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => dead.abort(), SILENCE_MS);
    };
    // The request may wait behind others of the page.
    silence = setTimeout(() => dead.abort(), HEAD_MS);
    try {
      const answer = await stream("events", { signal: AbortSignal.any([signal, dead.signal]) });
      heard();
      isCrowded = false;
      ok();
      await readEvents(answer, (event, data) => {
        heard();
        told(event, JSON.parse(data));
      });
    } finally {
      clearTimeout(silence);
    }
  }

  async function poll(signal) {
    const status = await ask("status", AbortSignal.any([signal, AbortSignal.timeout(2 * SILENCE_MS)]));
    polls -= 1;
    ok();
    told("state", status.serving ?? {});
    // Which requests ended is not told: the pages ask.
    told("request", null);
  }

  function close() {
    clearTimeout(timer);
    stop?.abort();
  }

  function onVisible() {
    close();
    if (!document.hidden) next(0);
  }

  document.addEventListener("visibilitychange", onVisible);
  next(0);
  return () => {
    document.removeEventListener("visibilitychange", onVisible);
    close();
  };
}

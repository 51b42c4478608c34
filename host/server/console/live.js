// Follows what happens in the host: events over one open answer, or a question every few seconds
// where the host has no events. Closed while the page is hidden.

import { ApiError, ask, stream } from "./api.js";

const POLL_MS = 5000;
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

// `told` gets `state`, `request`, `lost`, `reload`; `connected` gets true or false and the seconds
// to the next try; `refused` gets the error that signing in again mends.
export function follow({ told, connected, refused }) {
  let stop = null;
  let waitMs = 1000;
  let timer = 0;
  let isPolled = false;

  async function run() {
    stop = new AbortController();
    const { signal } = stop;
    try {
      if (isPolled) await poll(signal);
      else await listen(signal);
      next(isPolled ? POLL_MS : 1000);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status === 401) return refused(error);
      if (error instanceof ApiError && error.status === 404 && !isPolled) {
        isPolled = true;
        return next(0);
      }
      if (error instanceof ApiError && error.status === 429) {
        connected(false, error.waitMs / 1000, error);
        return next(error.waitMs);
      }
      connected(false, Math.round(waitMs / 1000));
      next(waitMs);
      waitMs = Math.min(waitMs * 2, WAIT_MS_MAX);
    }
  }

  function next(ms) {
    clearTimeout(timer);
    timer = setTimeout(run, ms);
  }

  function ok() {
    waitMs = 1000;
    connected(true);
  }

  async function listen(signal) {
    const answer = await stream("events", { signal });
    ok();
    await readEvents(answer, (event, data) => told(event, JSON.parse(data)));
  }

  async function poll(signal) {
    const status = await ask("status", signal);
    ok();
    told("state", status.serving ?? {});
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

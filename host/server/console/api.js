// Talks to the admin API. The bearer is in the session storage of this tab, so no other site and
// no other tab can use it.

const KEY = "cofferdam.bearer";

export class ApiError extends Error {
  constructor(status, type, message, { retryAfter, details } = {}) {
    super(message);
    Object.assign(this, { status, type, retryAfter, details });
  }

  // How long the host asks to wait.
  get waitMs() {
    const seconds = Number(this.retryAfter);
    return 1000 * (Number.isFinite(seconds) && seconds > 0 ? Math.min(seconds, 300) : this.status === 429 ? 60 : 5);
  }

  // What a person may do about it.
  get advice() {
    if (this.status === 0) return "The page tries again by itself.";
    if (this.status === 429) return `Try again in ${this.waitMs / 1000} s.`;
    if (this.status === 503) return "Try again in a moment.";
    if (this.status === 504) return "It may have been carried out: look before you try again.";
    if (this.status >= 500) return "The log of the host has the reason.";
    return "Trying again without a change will not help.";
  }
}

export const session = {
  get bearer() {
    return sessionStorage.getItem(KEY);
  },
  keep(bearer) {
    sessionStorage.setItem(KEY, bearer);
  },
  drop() {
    sessionStorage.removeItem(KEY);
  },
};

async function send(method, path, body, signal) {
  const headers = {};
  if (session.bearer) headers.authorization = `Bearer ${session.bearer}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const init = { method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error" };
  if (body !== undefined) init.body = JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(`/admin/v1/${path}`, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "The host does not answer.");
  }
  if (answer.ok) return answer;
  let told;
  try {
    told = (await answer.json()).error;
  } catch {
    told = {};
  }
  const message = told?.message ?? `The host answered ${answer.status}.`;
  throw new ApiError(answer.status, told?.type ?? "unknown", message, { retryAfter: answer.headers.get("retry-after"), details: told?.details });
}

export async function ask(path, signal) {
  return (await send("GET", path, undefined, signal)).json();
}

export async function change(path, members) {
  return (await send("POST", path, members)).json();
}

// The answer of a route that sends events.
export async function stream(path, { body, signal }) {
  return send(body === undefined ? "GET" : "POST", path, body, signal);
}

export async function signIn(credential) {
  const made = await change("session", credential);
  session.keep(made.bearer);
}

export async function signOut() {
  try {
    await send("DELETE", "session");
  } finally {
    session.drop();
  }
}

// The document of a route that older hosts lack, else `null`.
export async function optional(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

export function query(members) {
  const given = Object.entries(members).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given).toString();
  return text && `?${text}`;
}

// The most records of one kind that a page reads.
export const RECORDS_MAX = 1000;

// The newest records of a kind, `workspace`, `member`, `intern`, `key` or `secret`: all, or those of one workspace.
export function records(ask, kind, workspace) {
  return ask(`${kind}/list${query({ limit: RECORDS_MAX, workspace })}`);
}

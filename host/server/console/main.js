// The frame around the pages: navigation, the session, the state of the host, and one page at a time.

import { ApiError, ask, change, session, signIn, signOut } from "./api.js";
import { h, morph } from "./h.js";
import { follow } from "./live.js";
import { badge, button, fault, notice } from "./parts.js";
import keys from "./pages/keys.js";
import models from "./pages/models.js";
import overview from "./pages/overview.js";
import playground from "./pages/playground.js";
import plugins from "./pages/plugins.js";
import requests from "./pages/requests.js";
import signin from "./pages/signin.js";
import spend from "./pages/spend.js";
import vault from "./pages/vault.js";

const PAGES = { overview, requests, playground, models, plugins, keys, spend, vault };
const HOME = "overview";
const EVENT_PAUSE_MS = 1000;

const $ = (id) => document.getElementById(id);
let current = null;
let host = null;
let link = { ok: true, wait: 0 };
let leave = null;
let reason = null;
let toSay = "";
let sayTimer = 0;

// Tells screen readers something, at most once a second.
function say(text) {
  toSay = text;
  sayTimer ||= setTimeout(() => {
    sayTimer = 0;
    if ($("said").textContent !== toSay) $("said").textContent = toSay;
  }, 1000);
}

function place() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, ...rest] = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const known = Object.hasOwn(PAGES, first) ? first : HOME;
  return { page: known, rest: rest.join("/"), query: Object.fromEntries(new URLSearchParams(search ?? "")) };
}

function drawBar() {
  const at = place().page;
  const links = Object.entries(PAGES).map(([path, page]) => (
    h("li", {}, h("a", { href: `#/${path}`, "aria-current": path === at && session.bearer ? "page" : null }, page.title))
  ));
  const isIn = Boolean(session.bearer);
  morph($("bar"),
    h("a", { class: "brand", href: "#/overview" }, h("img", { src: "/console/icon.svg", alt: "", width: 24, height: 24 }), "Cofferdam"),
    isIn && h("nav", { "aria-label": "Pages" }, h("ul", {}, links)),
    isIn && h("div", { class: "state" }, hostState(), button("Sign out", leaveHost, { class: "quiet" })));
}

function hostState() {
  if (!link.ok) return link.error ? badge("warn", "waits") : badge("bad", "no connection");
  if (!host) return badge("", "connecting");
  const running = host.requests_running ?? host.running;
  return [
    badge(host.ready ? "ok" : "warn", host.ready ? "ready" : "not ready"),
    running !== undefined && h("span", { class: "running" }, `${running} running`),
  ];
}

function drawBanner() {
  const [what, why] = {
    429: ["The host asks to wait. ", "Too many wrong credentials were sent to it."],
    503: ["The host is busy or stopping. ", "It answered 503."],
  }[link.error?.status] ?? ["The host does not answer. ", "It may be restarting."];
  const lost = () => notice("warn", h("strong", {}, what),
    `${why} This page tries again${link.wait ? ` in ${link.wait} s` : ""} and stays as it is until then.`);
  const crowded = () => notice("warn", h("strong", {}, "Too many consoles are open. "),
    "This one asks the host every few seconds in place of following it. Close others.");
  morph($("banner"), session.bearer && (link.ok ? link.isCrowded && crowded() : lost()));
}

// One visit of one page: loads its data, draws it, and does both again when something happens.
class Visit {
  constructor(at) {
    Object.assign(this, { at, page: PAGES[at.page], state: {}, data: null, stop: new AbortController(), isLoading: false, isAsked: false, lastEvent: 0, connection: new AbortController() });
    this.rest = at.rest;
    this.query = at.query;
    this.change = change;
    this.say = say;
  }

  ask = (path) => ask(path, AbortSignal.any([this.stop.signal, this.connection.signal]));

  // For what takes long and is asked once: it goes on when the connection of the events is replaced.
  askToEnd = (path) => ask(path, this.stop.signal);

  async load() {
    if (this.isLoading) return void (this.isAsked = true);
    this.isLoading = true;
    try {
      this.data = await this.page.load(this);
      this.error = null;
    } catch (error) {
      if (this.stop.signal.aborted) return;
      if (isSignedOut(error)) return expired();
      this.error = error;
      if (!(error instanceof ApiError)) console.error(error);
      // The host asks to wait. That says nothing about this session, so the page asks again then.
      else if (error.status === 429 || error.status === 503) this.later(error.waitMs);
    } finally {
      this.isLoading = false;
    }
    this.draw();
    if (this.isAsked && !this.stop.signal.aborted) {
      this.isAsked = false;
      this.later(EVENT_PAUSE_MS);
    }
  }

  refresh = () => this.load();

  // Loads anew over another connection. What was asked over a dead one would be waited for until the system gives it up.
  reconnect() {
    this.connection.abort(new ApiError(0, "unreachable", "The connection was lost."));
    this.connection = new AbortController();
    this.load();
  }

  later(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.refresh, ms);
  }

  draw = () => {
    if (this !== current) return;
    const title = this.page.heading?.(this) ?? this.page.title;
    document.title = `${title} – Cofferdam`;
    const isLost = [0, 429, 503].includes(this.error?.status) && this.data;
    morph($("main"),
      h("h1", { id: "title", tabindex: "-1" }, h("bdi", {}, title)),
      this.error && !isLost && fault(this.error),
      this.data ? this.page.view(this.data, this) : !this.error && h("p", { class: "loading" }, "Loading…"));
  };

  // Runs something that changes the host, and shows what came of it.
  run = async (work, done) => {
    try {
      const made = await work();
      if (done) say(done);
      await this.load();
      return made;
    } catch (error) {
      if (isSignedOut(error)) return expired();
      this.error = error;
      this.draw();
      this.error = null;
      return null;
    }
  };

  go = (path) => {
    location.hash = `#/${path}`;
  };

  told(event, data) {
    if (document.hidden || this.stop.signal.aborted) return;
    if (!this.page.hears?.includes(event) || this.page.isHeld?.(this, event, data)) return;
    const wait = Math.max(0, this.lastEvent + (this.page.pauseMs ?? EVENT_PAUSE_MS) - Date.now());
    if (this.waits) return;
    this.waits = true;
    setTimeout(() => {
      this.waits = false;
      this.lastEvent = Date.now();
      if (this === current) this.load();
    }, wait);
  }

  end() {
    clearTimeout(this.timer);
    this.stop.abort();
    this.page.leave?.(this);
  }
}

function isSignedOut(error) {
  return error instanceof ApiError && error.status === 401;
}

function show() {
  current?.end();
  drawBar();
  if (!session.bearer) return void showSignIn();
  leave ??= follow({ told, connected, refused: expired });
  current = new Visit(place());
  morph($("main"));
  current.draw();
  current.load();
}

function showSignIn(text = reason) {
  current = null;
  reason = text;
  document.title = "Sign in – Cofferdam";
  morph($("main"), signin({
    text,
    submit: async (token) => {
      await signIn({ token });
      reason = null;
      show();
      $("title")?.focus();
    },
  }));
}

function expired() {
  leave?.();
  [leave, host, link] = [null, null, { ok: true, wait: 0 }];
  session.drop();
  current?.end();
  drawBar();
  drawBanner();
  showSignIn("Your session has ended: it expired, or the host was restarted. Sign in again and this page comes back.");
}

async function leaveHost() {
  leave?.();
  [leave, host, link, reason] = [null, null, { ok: true, wait: 0 }, null];
  try {
    await signOut();
  } catch {
    // The bearer is dropped here; the host ends it after an hour at the latest.
  }
  location.hash = "#/overview";
  show();
}

function told(event, data) {
  if (event === "state") {
    const before = host?.ready;
    host = data;
    if (before !== undefined && before !== host.ready) say(host.ready ? "The host is ready" : "The host is not ready");
    drawBar();
  }
  current?.told(event, data);
}

function connected(now) {
  const was = link;
  link = now;
  if (was.ok !== link.ok) say(link.ok ? "Connected again" : link.error ? "The host asks to wait" : "The host does not answer");
  else if (link.isCrowded && !was.isCrowded) say("Too many consoles are open");
  drawBar();
  drawBanner();
  if (link.ok && !was.ok) was.error ? current?.load() : current?.reconnect();
}

// The code of a link is taken out of the address before anything else.
async function start() {
  const code = /^#code=([^&]+)$/.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, "", `${location.pathname}#/overview`);
    session.drop();
    try {
      await signIn({ code: decodeURIComponent(code) });
      reason = null;
    } catch (error) {
      drawBar();
      return showSignIn(error.status === 401 ? "This link was used already or is older than a minute. `cofferdam console` prints a new one." : `${error.message} ${error.advice ?? ""}`);
    }
  }
  show();
}

$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("main").focus();
});
// What happened while the page was hidden is shown when it is looked at again.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && session.bearer) current?.load();
});
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#code=")) return void start();
  show();
  $("title")?.focus({ preventScroll: true });
  scrollTo(0, 0);
});
start();


// Sends one request as a workspace and shows what happens in it, step by step.

import { records, stream } from "../api.js";
import { dollars } from "../format.js";
import { h } from "../h.js";
import { readEvents } from "../live.js";
import { badge, button, copied, empty, fault, field, missing, notice, section, select } from "../parts.js";
import { drawing, stepTable, whereTimeWent } from "../timeline.js";

const EVENTS_MAX = 2000;
const TABS = ["Answer", "Events", "Sent upstream", "curl"];
const FIRST = "Hello! What can you do?";

function requestOf(given) {
  const request = { model: given.model, input: given.input ?? "", stream: true };
  if (given.tools?.length) request.tools = given.tools.map((type) => ({ type }));
  if (given.echo) request.debug = { echo_upstream_body: true };
  return request;
}

// Where clients on the machine of the host reach it: an unspecified address is that of all its interfaces.
function baseOf({ listen = "127.0.0.1:8080", tls } = {}) {
  const address = listen.replace(/^0\.0\.0\.0:/, "127.0.0.1:").replace(/^\[::\]:/, "[::1]:");
  return `${tls ? "https" : "http"}://${address}`;
}

function curlOf(request, serving) {
  const quoted = JSON.stringify(request, null, 2).replaceAll("'", "'\\''");
  return `curl -N ${baseOf(serving)}/v1/responses \\\n  -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" \\\n  -d '${quoted}'`;
}

// What is known of the run so far.
class Run {
  constructor(request) {
    Object.assign(this, { request, steps: new Map(), events: [], sent: [], text: "", response: null, error: null, isRunning: true, began: performance.now(), lost: 0 });
  }

  told(event, data) {
    if (data === "[DONE]") return;
    const said = JSON.parse(data);
    if (event === "cofferdam.step") return void this.steps.set(said.n, said);
    const type = said.type ?? event;
    if (this.events.length < EVENTS_MAX) this.events.push({ type, data });
    else this.lost += 1;
    if (type === "response.output_text.delta") this.text += said.delta;
    if (type === "response.debug") this.sent.push(said);
    if (said.response && /^response\.(completed|failed|incomplete)$/.test(type)) this.response = said.response;
    if (type === "error" || said.error) this.error = said.error?.message ?? said.message ?? "The request failed.";
  }

  get us() {
    const ends = [...this.steps.values()].map((it) => it.at_us + (it.us ?? 0));
    return Math.max(0, ...ends);
  }
}

function result(run, serving, state, draw) {
  if (!run) return empty("Nothing sent yet", "Write an input and send it. The timeline shows each step as it happens.");
  const steps = [...run.steps.values()];
  const cost = run.response?.usage?.cost;
  const panels = {
    Answer: () => (run.text ? h("pre", { class: "answer", tabindex: "0" }, h("bdi", {}, run.text)) : h("p", {}, run.isRunning ? "Waiting for the first content…" : "The answer has no text.")),
    Events: () => [run.lost > 0 && h("p", {}, `${run.lost} further events are not shown.`), h("ol", { class: "events", tabindex: "0" }, run.events.map((it) => h("li", {}, h("strong", {}, it.type), h("code", {}, it.data))))],
    "Sent upstream": () => (run.sent.length ? run.sent.map((it) => copied(JSON.stringify(it, null, 2))) : h("p", {}, "Nothing was sent over the network, or the model answers without one.")),
    curl: () => copied(curlOf(run.request, serving)),
  };
  return [
    h("div", { class: "outcome" },
      run.isRunning ? badge("", "running") : run.error || run.response?.status === "failed" ? badge("bad", "failed") : badge("ok", run.response?.status ?? "done"),
      cost !== undefined && h("span", {}, dollars(cost)),
      run.response?.usage && h("span", {}, `${run.response.usage.input_tokens} tokens in, ${run.response.usage.output_tokens} out`),
      !run.isRunning && run.response?.id && h("a", { href: `#/requests/${encodeURIComponent(run.response.id)}` }, "Open in Requests")),
    run.error && notice("bad", h("bdi", {}, run.error)),
    run.response?.error && notice("bad", h("bdi", {}, run.response.error.message)),
    section("Timeline", steps.length ? [drawing(steps, run.us), !run.isRunning && [whereTimeWent(steps, run.us), stepTable(steps)]] : h("p", {}, run.isRunning ? "Waiting for the first step…" : "No step was recorded.")),
    h("div", { class: "tabs", role: "tablist", "aria-label": "What was said" }, TABS.map((tab) => h("button", {
      type: "button", role: "tab", id: `tab-${tab[0]}`, "aria-controls": "panel", "aria-selected": String(tab === state.tab), tabindex: tab === state.tab ? null : "-1",
      onclick: () => {
        state.tab = tab;
        draw();
      },
      onkeydown: (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        state.tab = TABS[(TABS.indexOf(state.tab) + step + TABS.length) % TABS.length];
        draw();
        document.getElementById(`tab-${state.tab[0]}`)?.focus();
      },
    }, tab))),
    h("div", { id: "panel", role: "tabpanel", "aria-labelledby": `tab-${state.tab[0]}`, "data-key": `panel-${state.tab}` }, panels[state.tab]()),
  ];
}

async function send(form, page) {
  const { state } = page;
  if (state.run?.isRunning) return;
  const given = Object.fromEntries(new FormData(form));
  given.tools = [...form.querySelectorAll("input[name=tools]:checked")].map((it) => it.value);
  const run = new Run(requestOf(given));
  state.run = run;
  state.fault = null;
  state.stop = new AbortController();
  let frame = 0;
  const draw = () => (frame ||= requestAnimationFrame(() => {
    frame = 0;
    page.draw();
  }));
  draw();
  page.say("Sent");
  try {
    const answer = await stream("playground", { body: { as: given.as, request: run.request }, signal: state.stop.signal });
    await readEvents(answer, (event, data) => {
      run.told(event, data);
      draw();
    });
  } catch (error) {
    if (!state.stop.signal.aborted) state.fault = error;
    run.error ??= state.stop.signal.aborted ? "Stopped." : error.message;
  }
  run.isRunning = false;
  page.say(run.error ? "The request failed" : "The answer is complete");
  draw();
}

export default {
  title: "Playground",

  async load({ ask, state }) {
    const [models, workspaces, plugins, status] = await Promise.all([ask("models"), records(ask, "workspace"), ask("plugin/list"), ask("status")]);
    state.tab ??= "Answer";
    return { models: models.filter((it) => it.kind === "responses"), workspaces, plugins, status };
  },

  view({ models, workspaces, plugins, status }, page) {
    const { state } = page;
    const tools = plugins.filter((it) => it.tool_type).map((it) => `service:${it.tool_type}`);
    return [
      h("form", {
        class: "play",
        onsubmit: (event) => {
          event.preventDefault();
          send(event.currentTarget, page);
        },
        onkeydown: (event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.requestSubmit();
        },
      },
      h("div", { class: "filters" },
        field("Model", select("model", models.map((it) => [it.id, it.id]))),
        field("As", select("as", workspaces.map((it) => [it.name, it.name]))),
        h("label", { class: "check" }, h("input", { type: "checkbox", name: "echo", checked: true }), "Show what is sent upstream")),
      h("details", {}, h("summary", {}, "Tools"), h("div", { class: "checks" }, tools.map((it) => h("label", { class: "check" }, h("input", { type: "checkbox", name: "tools", value: it }), name(it))))),
      field("Input", h("textarea", { name: "input", rows: 4, required: true, maxlength: 20_000 }, FIRST)),
      h("div", { class: "buttons" },
        h("button", { type: "submit", class: "primary", disabled: state.run?.isRunning }, "Send"), h("span", { class: "hint" }, "Ctrl+Enter"),
        state.run?.isRunning && button("Stop", () => state.stop.abort())),
      h("p", { class: "hint" }, "The request is real: it costs what it costs and counts for this workspace.")),
      state.fault && !state.run?.isRunning && (state.fault.status === 404 && state.fault.message.startsWith("no such path") ? missing("Playground") : fault(state.fault)),
      h("div", { class: "result" }, result(state.run, status.serving ?? undefined, state, page.draw)),
    ];
  },

  leave: ({ state }) => state.stop?.abort(),
};

function name(text) {
  return h("bdi", {}, text);
}

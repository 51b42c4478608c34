// The models with their endpoints and their health, and what happens when a provider goes down.

import { optional, query } from "../api.js";
import { count, dollars, duration, failedOf, NONE } from "../format.js";
import { h } from "../h.js";
import { badge, empty, name, section, table } from "../parts.js";
import { breakerBadge, failedAgo } from "./overview.js";
import { GROUPS_MAX, othersCell, withOthers } from "./spend.js";

function healthTable(endpoints) {
  return table("Endpoints in order of preference", [
    { title: "Model", cell: (it) => name(it.model) },
    { title: "Provider", cell: (it) => [name(it.provider), h("small", {}, name(it.upstream), it.tier && it.tier !== "default" && `, ${it.tier}`)] },
    { title: "State", cell: breakerBadge },
    { title: "Attempts, 5 min", kind: "number", cell: (it) => count(it.requests) },
    { title: "Failed", kind: "number", cell: (it) => count(it.failures) },
    { title: "First content", kind: "number", cell: (it) => (it.first_content_ms ? duration(Math.round(it.first_content_ms * 1000)) : NONE) },
    { title: "Whole answer", kind: "number", cell: (it) => (it.whole_ms ? duration(Math.round(it.whole_ms * 1000)) : NONE) },
    { title: "Tokens/s", kind: "number", cell: (it) => (it.tokens_per_second ? count(Math.round(it.tokens_per_second)) : NONE) },
    { title: "Last failure", cell: failedAgo },
  ], endpoints, { key: (it) => `${it.model} ${it.provider} ${it.upstream} ${it.tier}` });
}

// The models with their usage. What a model beyond the listed groups used is part of the sums of the others.
function modelTable(models, usage) {
  const used = new Map(usage.groups.map((it) => [it.model, it]));
  const unlisted = usage.others.requests > 0 ? null : { requests: 0, cost: 0 };
  const sums = (it) => (it.isRest ? it : used.get(it.id) ?? unlisted);
  return table("Models", [
    { title: "Model", cell: (it) => (it.isRest ? othersCell() : [h("a", { href: `#/requests?model=${encodeURIComponent(it.id)}`, title: "Its requests" }, name(it.id)), h("small", {}, it.kind)]) },
    { title: "Providers, in order", kind: "wide", cell: (it) => (it.isRest ? NONE : it.providers.map((provider, index) => [index ? " then " : "", name(provider)])) },
    { title: "Context", kind: "number", cell: (it) => count(it.context_length) },
    { title: "Requests, 7 days", kind: "number", cell: (it) => count(sums(it)?.requests) },
    { title: "Failed", kind: "number", cell: (it) => count(sums(it) && failedOf(sums(it))) },
    { title: "Spend", kind: "number", cell: (it) => dollars(sums(it)?.cost) },
  ], withOthers({ groups: models, others: usage.others }), { key: (it) => (it.isRest ? "others" : `of ${it.id}`) });
}

// What is left of each model without one provider. An endpoint that is open now is no help.
export function withoutProvider(models, endpoints) {
  const isSick = (model, provider) => {
    const found = endpoints.filter((it) => it.model === model && it.provider === provider);
    return found.length > 0 && found.every((it) => it.breaker === "open");
  };
  const providers = [...new Set(models.flatMap((it) => it.providers))].sort();
  return providers.map((provider) => {
    const using = models.filter((it) => it.providers.includes(provider));
    const plans = using.map((model) => {
      const others = [...new Set(model.providers.filter((it) => it !== provider))];
      return { model: model.id, next: others.find((it) => !isSick(model.id, it)), others };
    });
    return { provider, plans, lost: plans.filter((it) => !it.next) };
  });
}

function outage({ provider, plans, lost }) {
  const goOn = plans.filter((it) => it.next);
  return [
    lost.length > 0 && h("p", {}, badge("bad", "fails"), " ", lost.map((it, index) => [index ? ", " : "", name(it.model)]),
      lost.some((it) => it.others.length) ? " (other endpoints are open now)" : " (no other provider)"),
    goOn.length > 0 && h("p", {}, badge("ok", "goes on"), " ", goOn.map((it, index) => [index ? ", " : "", name(it.model), " at ", name(it.next)])),
    !plans.length && provider,
  ];
}

export default {
  title: "Models",
  hears: ["state", "reload"],
  pauseMs: 3000,

  async load({ ask }) {
    const [models, endpoints, usage] = await Promise.all([ask("models"), optional(ask("endpoints")), ask(`usage${query({ by: "model", days: 7, limit: GROUPS_MAX })}`)]);
    return { models, endpoints, usage };
  },

  view({ models, endpoints, usage }) {
    if (!models.length) return empty("No model is configured", "Add [[providers]] and [[models]] to cofferdam.toml and reload the host.");
    return [
      endpoints ? section("Endpoints", healthTable(endpoints)) : null,
      section("Models", modelTable(models, usage)),
      section("What happens if a provider goes down",
        h("p", { class: "hint" }, "By the configured endpoints and their state now. A request may narrow them further, for instance by ", h("code", {}, "provider.only"), "."),
        table("Outages", [
          { title: "Without", cell: (it) => name(it.provider) },
          { title: "Then", kind: "wide", cell: outage },
        ], withoutProvider(models, endpoints ?? []), { key: (it) => it.provider })),
    ];
  },
};

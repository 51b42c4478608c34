// Asks for the operator token where no link brought a code.

import { h, morph } from "../h.js";
import { code, fault, field, notice } from "../parts.js";

export default function signin({ text, submit }) {
  const told = h("div", { "data-own": "told" });
  const send = h("button", { type: "submit", class: "primary" }, "Sign in");
  const token = h("input", { name: "token", type: "password", required: true, autocomplete: "off", spellcheck: "false" });
  return h("div", { class: "signin", "data-key": "signin" },
    h("h1", { id: "title", tabindex: "-1" }, "Sign in"),
    text && notice("warn", text),
    h("p", {}, "Run ", code("cofferdam console"), " on the machine of the host and open the link that it prints. It works once, for a minute."),
    h("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        send.disabled = true;
        try {
          await submit(token.value.trim());
        } catch (error) {
          morph(told, error.status === 401
            ? notice("bad", h("strong", {}, "This is not the operator token. "), "It is the content of the file operator.token in the data directory.")
            : fault(error));
          send.disabled = false;
          token.focus();
        }
      },
    },
    field("Operator token", token, "Or paste the content of operator.token from the data directory of the host."),
    told, send));
}

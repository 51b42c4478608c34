// Tests the console in a browser against the built program:
//     node run.js PATH_TO_BINARY [--smoke] [--sources DIR] [--shots DIR] [--pictures DIR] [--only WORD,...]
// `--smoke` signs in and looks at one page. `--sources` takes the console's files from a folder in
// place of those in the program, so that a change of a page needs no build. `--pictures` writes the
// pictures of the documents into a folder.

import { mkdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { answerChecks } from "./answers.js";
import { attackChecks } from "./attacks.js";
import { launch } from "./browser.js";
import { Host } from "./host.js";
import { pageChecks } from "./pages.js";
import { pluginChecks } from "./plugins.js";
import { sessionChecks, smoke } from "./sessions.js";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { smoke: { type: "boolean" }, sources: { type: "string" }, shots: { type: "string" }, pictures: { type: "string" }, only: { type: "string" } },
});
if (positionals.length !== 1) {
  console.error("usage: node run.js PATH_TO_BINARY [--smoke] [--sources DIR] [--shots DIR] [--pictures DIR] [--only WORD,...]");
  process.exit(2);
}
const here = path.dirname(fileURLToPath(import.meta.url));
const shots = values.shots ?? path.join(process.env.CARGO_TARGET_DIR ?? path.join(here, "../../target"), "console");
mkdirSync(shots, { recursive: true });

const failures = [];
let passed = 0;
async function check(title, work) {
  const wanted = values.only?.split(",").some((word) => title.includes(word)) ?? true;
  if (!wanted && !title.startsWith("the data")) return;
  try {
    const wrong = (await work()) ?? [];
    if (wrong.length) throw new Error(wrong.join("\n    "));
    passed += 1;
    console.log(`ok      ${title}`);
  } catch (error) {
    failures.push(title);
    console.log(`FAILED  ${title}\n    ${error.message}`);
  }
}

const host = await Host.start(positionals[0]);
const browser = await launch();
try {
  const scene = { host, browser, check, shots, sources: values.sources, pictures: values.pictures };
  if (values.smoke) {
    await smoke(scene);
  } else {
    await check("the data of the pages: usage, failures, a fallback and a release", async () => {
      const statuses = await host.fill();
      return new Set(statuses).size > 2 ? [] : [`statuses: ${statuses}`];
    });
    await pageChecks(scene);
    await pluginChecks(scene);
    await answerChecks(scene);
    await sessionChecks(scene);
    await attackChecks(scene);
  }
} finally {
  await browser.close();
  await host.end();
}
console.log(`${passed} passed, ${failures.length} failed`);
process.exit(failures.length ? 1 : 0);

// The page: options, progress and tables. It drives worker.mjs, which does the work.
// For a program that drives the page: `index.html?autorun&threads=2&min-ns=2000000000` (options by
// the runner's names, also check-only); the outcome is in window.edgeResult:
//   {state: "idle|running|passed|failed|stopped", lines: [JSON lines], parity: [one an output]}

import { OPTIONS } from "../runner/edge_runner.mjs";
import { environmentRows, parityRows, timingRows, verdictOf } from "./tables.mjs";

const config = JSON.parse(document.getElementById("config").textContent);
const byId = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
const PHASES = {
  download: "Fetching", verify: "Checking the files against the manifest",
  load: "Loading the model", check: "Running the golden samples", warmup: "Warming up",
  measure: "Measuring",
};

const result = { state: "idle", lines: [], parity: [] };
window.edgeResult = result;
const events = [];
let worker = null;

function optionsFromPage() {
  const options = { ...OPTIONS };
  for (const name of Object.keys(OPTIONS))
    if (/^[0-9]{1,15}$/.test(query.get(name) ?? "")) options[name] = Number(query.get(name));
  const most = navigator.hardwareConcurrency || 1;
  options.threads = Math.min(most, Math.max(1, Math.trunc(Number(byId("threads").value)) || 1));
  options["min-ns"] = Math.round(Number(byId("seconds").value) * 1e9);
  options["max-ns"] = Math.max(options["max-ns"], options["min-ns"]);
  return options;
}

function fill(id, rows) {
  byId(id).replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    cells.forEach((cell, at) => {
      const box = document.createElement(at === 0 ? "th" : "td");
      const { text, kind = "" } = typeof cell === "object" ? cell : { text: cell };
      box.textContent = text;
      box.className = kind;
      if (at === 0) box.scope = "row";
      row.append(box);
    });
    return row;
  }));
}

function say(text, kind = "") {
  byId("status").textContent = text;
  byId("status").className = kind;
}

function draw() {
  fill("environment", environmentRows(events, config));
  fill("parity", parityRows(result.parity));
  fill("timing", timingRows(events));
  byId("golden").hidden = !result.parity.length;
  byId("figures").hidden = !events.some(({ event }) => event === "load");
  byId("lines").textContent = result.lines.join("\n");
  byId("raw").hidden = !result.lines.length;
}

function setState(state) {
  result.state = state;
  document.documentElement.dataset.state = state;
  for (const id of ["run", "check", "threads", "seconds"]) byId(id).disabled = state === "running";
  byId("stop").disabled = state !== "running";
  byId("download").disabled = state === "running";
}

function end(state, text) {
  worker?.terminate();
  worker = null;
  setState(state);
  say(text, state);
  draw();
}

function receive({ data }) {
  if (data.event) {
    events.push(data.event);
    result.lines.push(JSON.stringify(data.event));
    if (data.event.event !== "sample") draw();
  } else if (data.parity) result.parity.push(data.parity);
  else if (data.phase) say(`${PHASES[data.phase]}${data.path ? ` ${data.path}` : ""} …`);
  else if (data.ended) end(...verdictOf(events, result.parity));
}

function start(checkOnly) {
  events.length = 0;
  result.lines.length = 0;
  result.parity.length = 0;
  setState("running");
  say("Starting …");
  draw();
  worker = new Worker(new URL("./worker.mjs", import.meta.url), { type: "module" });
  worker.addEventListener("message", receive);
  worker.addEventListener("error", (event) => {
    event.preventDefault();
    const message = event.message || "the worker did not start";
    receive({ data: { event: { event: "error", stage: "runtime", message } } });
    receive({ data: { ended: "failed" } });
  });
  worker.postMessage({ config, options: { ...optionsFromPage(), "check-only": checkOnly } });
}

function save() {
  const link = document.createElement("a");
  const text = `${result.lines.join("\n")}\n`;
  link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  link.download = `${config.name}-${config.version}-browser.jsonl`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function prepare() {
  const most = navigator.hardwareConcurrency || 1;
  byId("threads").max = self.crossOriginIsolated ? most : 1;
  byId("threads").value = query.get("threads") ?? OPTIONS.threads;
  byId("seconds").value = Number(query.get("min-ns") ?? OPTIONS["min-ns"]) / 1e9;
  byId("isolation").hidden = self.crossOriginIsolated;
  byId("run").addEventListener("click", () => start(false));
  byId("check").addEventListener("click", () => start(true));
  byId("stop").addEventListener("click", () => end("stopped", "Stopped."));
  byId("download").addEventListener("click", save);
  setState("idle");
  say("Ready.");
  draw();
  byId("app").hidden = false;
  byId("static").hidden = true;
  if (query.has("autorun")) start(query.has("check-only"));
}

prepare();

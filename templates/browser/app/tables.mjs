// What the page's tables say, as rows of cells (text, or {text, kind}); nothing here touches the
// page, and nothing from a model or a device is ever read as HTML.

// The limits of edge/stats.py: below these counts of samples a figure means nothing.
const MIN_MEDIAN = 30;
const MIN_P90 = 100;
const MIN_P99 = 1000;
const RESAMPLES = 1000;
const THINNED = 2000; // samples that the bootstrap takes at most

export function formatNs(ns) {
  if (!(ns >= 0)) return "—";
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 0]];
  const [unit, scale] = units.find(([, least]) => ns >= least);
  return `${Number((ns / (scale || 1)).toPrecision(4))} ${unit}`;
}

export function formatBytes(bytes) {
  if (!(bytes >= 0)) return "unknown";
  const units = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 0]];
  const [unit, scale] = units.find(([, least]) => bytes >= least);
  return `${Number((bytes / (scale || 1)).toPrecision(4))} ${unit}`;
}

// Between order statistics, linear (Hyndman and Fan's type 7); `sorted` ascending.
export function quantile(sorted, fraction) {
  const place = fraction * (sorted.length - 1);
  const below = Math.floor(place);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
}

// Seeded, so that the same samples always say the same (mulberry32).
function generator(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// 95 % interval of the median by a circular block bootstrap, blocks of sqrt(n) successive
// samples: single samples are correlated, and drawing them alone makes the interval too narrow.
export function medianInterval(samples, seed = 0) {
  if (samples.length < MIN_MEDIAN) return null;
  const stride = Math.ceil(samples.length / THINNED);
  const series = samples.filter((_, at) => at % stride === 0);
  const size = Math.max(1, Math.round(Math.sqrt(series.length)));
  const random = generator(seed);
  const drawn = new Float64Array(series.length);
  const medians = Float64Array.from({ length: RESAMPLES }, () => {
    for (let at = 0, start = 0; at < drawn.length; at += 1) {
      if (at % size === 0) start = Math.floor(random() * series.length);
      drawn[at] = series[(start + (at % size)) % series.length];
    }
    return quantile(drawn.sort(), 0.5);
  }).sort();
  return [quantile(medians, 0.025), quantile(medians, 0.975)];
}

// Of the samples in the order taken; null where there are too few, or (percentiles) where a
// sample is the mean of several runs, which hides the tail.
export function summary(samples, batch = 1) {
  const sorted = Float64Array.from(samples).sort();
  const tail = (least, fraction) =>
    (batch === 1 && sorted.length >= least ? quantile(sorted, fraction) : null);
  return {
    n: sorted.length,
    median: quantile(sorted, 0.5),
    interval: medianInterval(samples),
    least: sorted[0],
    p90: tail(MIN_P90, 0.9),
    p99: tail(MIN_P99, 0.99),
  };
}

const find = (events, name) => events.find(({ event }) => event === name);

export function environmentRows(events, config) {
  const env = find(events, "env");
  const isolated = self.crossOriginIsolated;
  const rows = [
    ["Runtime", `onnxruntime-web ${env?.version ?? config.runtime_version}, ${config.provider}`],
    ["Model file", config.artifact],
    ["Browser", navigator.userAgent],
    ["Cross-origin isolated", isolated
      ? "yes: threads and a fine clock" : { text: "no: one thread, a coarse clock", kind: "warn" }],
    ["Logical cores", String(navigator.hardwareConcurrency ?? "unknown")],
  ];
  if (!env) return rows;
  const fewer = env.threads !== env.threads_asked;
  const threads = `${env.threads}${fewer ? ` (${env.threads_asked} asked for)` : ""}`;
  return [...rows, ["Threads really used", { text: threads, kind: fewer ? "warn" : "" }],
    ["Timer resolution", formatNs(env.timer_ns)]];
}

const number = (text) => ({ text, kind: "number" });
const shape = (dims) => (dims.length ? dims.join("×") : "scalar");

// Whole numbers (differences of integers) as they are, others with three digits.
function figure(value) {
  if (value == null) return number("—");
  return number(Number.isInteger(value) && value < 1e6
    ? String(value) : Number(value.toPrecision(3)).toExponential());
}

function verdictCell({ ok, notes }) {
  if (ok == null) return { text: notes.join("; "), kind: "warn" };
  return { text: [ok ? "✓" : "✗", notes.join("; ")].join(" "), kind: ok ? "passed" : "failed" };
}

export function parityRows(parity) {
  return parity.map((found) => [
    String(found.sample), found.name,
    verdictCell(found),
    `${found.dtype} ${shape(found.shape)}`, figure(found.max_abs), figure(found.max_rel),
  ]);
}

function medianRow({ median, interval, n }) {
  const said = interval
    ? `95 % interval ${interval.map(formatNs).join(" to ")}`
    : `${n} samples: an interval needs ${MIN_MEDIAN}`;
  return ["Median", { text: formatNs(median), kind: "number strong" }, said];
}

function tailRow(label, ns, least, batch) {
  const why = batch > 1 ? "samples are means of several runs" : `needs ${least} samples`;
  return [label, number(ns == null ? "—" : formatNs(ns)), ns == null ? why : ""];
}

// A reading is off by one step of the clock at most.
function roundingRow({ median }, { timer_ns }, batch) {
  const percent = Number(((100 * timer_ns) / (median * batch)).toPrecision(2));
  const means = batch > 1 ? `, so each sample is the mean of ${batch} runs` : "";
  return ["Rounding", number(`≤ ${percent} %`),
    `the clock steps by ${formatNs(timer_ns)}${means}`];
}

function sampleRows(events) {
  const samples = events.flatMap(({ event, ns }) => (event === "sample" ? ns : []));
  const done = find(events, "end");
  if (!samples.length || !done) return [];
  const { batch = 1, runs, wall_ns } = done;
  const found = summary(samples, batch);
  const rate = Number(((runs * 1e9) / wall_ns).toPrecision(4));
  return [
    medianRow(found),
    tailRow("90th percentile", found.p90, MIN_P90, batch),
    tailRow("99th percentile", found.p99, MIN_P99, batch),
    ["Fastest", number(formatNs(found.least)), ""],
    ["Throughput", number(`${rate} /s`), `${runs} runs in ${formatNs(wall_ns)}`],
    roundingRow(found, find(events, "env"), batch),
  ];
}

function warmUpNote({ runs, stable }) {
  if (stable) return `${runs} runs, then stable`;
  return { text: `${runs} runs, not stable within the limit`, kind: "warn" };
}

export function timingRows(events) {
  const rows = [];
  const add = (name, label, figureOf, note) => {
    const event = find(events, name);
    if (event) rows.push([label, number(figureOf(event)), note(event)]);
  };
  add("load", "Load", ({ ns }) => formatNs(ns),
    () => "compile the runtime, make the session; files already here");
  add("first", "First run", ({ ns }) => formatNs(ns), () => "");
  add("warmup", "Warm-up", ({ ns }) => formatNs(ns), warmUpNote);
  rows.push(...sampleRows(events));
  add("memory", "WebAssembly memory", (event) => formatBytes(event.wasm_bytes),
    () => "peak of runtime and model; the browser's own is not known");
  return rows;
}

// [state, sentence] for the end of a run; `ok` is null for an output without a golden one.
export function verdictOf(events, parity) {
  const error = find(events, "error");
  if (error) return ["failed", `Failed (${error.stage}): ${error.message}`];
  const bad = parity.filter(({ ok }) => ok === false).length;
  if (bad) return ["failed", `${bad} of ${parity.length} outputs differ from the golden samples.`];
  const good = parity.filter(({ ok }) => ok).length;
  if (!good) return ["failed", "The bundle has no golden outputs: nothing could be checked."];
  const rest = parity.length - good;
  const unknown = rest ? ` ${rest} more have no golden output.` : "";
  return ["passed", `${good} outputs agree with the golden samples.${unknown}`];
}

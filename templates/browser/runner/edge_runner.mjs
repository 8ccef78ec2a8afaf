// The runner's core: the same file measures in a page (app/worker.mjs) and under Node
// (runner/node_runner.mjs). It knows neither; all that differs is in the `host` object.
// Protocol 1: JSON lines env, load, first, output, warmup, sample, memory, end; or error.

import { bytesOf, failureOf, Failure, groupSamples, MAX_INDEX_BYTES, parseSamples, toTensor }
  from "./samples.mjs";

export const PROTOCOL = 1;
export const OPTIONS = {
  warmup: 3, // runs, at least
  "warmup-ns": 500_000_000, // at least
  "warmup-limit-ns": 10_000_000_000, // at most, stable or not
  iterations: 100, // timed runs, at least
  "min-ns": 5_000_000_000, // of the timed loop, at least
  "max-ns": 60_000_000_000, // of the timed loop, at most
  threads: 1,
};
const MAX_MODEL_BYTES = 2 ** 31; // wasm32 cannot hold the file and its tensors beyond this
const MAX_MANIFEST_BYTES = 64_000_000;
const MANIFEST_SCHEMA = 1;
const WINDOW = 10; // runs whose median is compared with the next window's
const SETTLED = 0.03; // successive medians within 3 %
const TICKS = 100; // a reading spans this many timer ticks, so that rounding stays below 1 %
const MOST_RUNS = 10_000; // per reading
const PER_LINE = 100;

export function median(values) {
  const sorted = Float64Array.from(values).sort();
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// True when the medians of the last two whole windows of runs agree.
export function settled(times) {
  const end = times.length - (times.length % WINDOW);
  if (end < 2 * WINDOW) return false;
  const before = median(times.slice(end - 2 * WINDOW, end - WINDOW));
  const last = median(times.slice(end - WINDOW, end));
  return Math.abs(last - before) <= SETTLED * before;
}

// The smallest step of the clock in ns: browsers make it coarse on purpose.
export function timerTick(now, flips = 20) {
  let smallest = Infinity;
  for (let last = now(), seen = 0; seen < flips; ) {
    const reading = now();
    if (reading > last) {
      smallest = Math.min(smallest, reading - last);
      last = reading;
      seen += 1;
    }
  }
  return Math.round(smallest);
}

// What WebAssembly memories made from now on hold, in bytes. They only grow, so it is the peak of
// the model's and the runtime's own memory, which no browser tells otherwise.
export function watchMemory() {
  const seen = [];
  WebAssembly.Memory = new Proxy(WebAssembly.Memory, {
    construct(target, words) {
      const memory = new target(...words);
      seen.push(memory);
      return memory;
    },
  });
  return () => seen.reduce((sum, memory) => sum + memory.buffer.byteLength, 0);
}

// The manifest's files by path, or null: a bundle made by hand has none and is taken as it is.
async function readManifest(host) {
  const bytes = await host.read("manifest.json", MAX_MANIFEST_BYTES, true);
  if (!bytes) return null;
  try {
    const { schema, files } = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    if (schema !== MANIFEST_SCHEMA) throw new Error(`its schema is ${JSON.stringify(schema)}`);
    return new Map(files.map((file) => [file.path, file]));
  } catch (error) {
    throw new Failure("bundle", `manifest.json is no manifest: ${failureOf(error).message}`);
  }
}

// A file with the size and the hash that the manifest says; what it does not list is no part
// of the bundle.
async function checkedRead(host, manifest, path, limit) {
  const listed = manifest?.get(path);
  if (manifest && !listed) throw new Failure("bundle", `manifest.json does not list ${path}`);
  const bytes = await host.read(path, limit);
  if (listed && (bytes.byteLength !== listed.size || (await host.sha256(bytes)) !== listed.sha256))
    throw new Failure("bundle", `${path} is not the file that manifest.json lists`);
  return bytes;
}

async function readCases(host, manifest) {
  const index = await checkedRead(host, manifest, "samples/samples.tsv", MAX_INDEX_BYTES);
  const cases = groupSamples(parseSamples(index));
  for (const tensor of cases.flatMap(({ inputs, outputs }) => [...inputs, ...outputs])) {
    tensor.bytes = await checkedRead(host, manifest, `samples/${tensor.file}`, tensor.nbytes);
    if (tensor.bytes.byteLength !== tensor.nbytes)
      throw new Failure("bundle", `samples/${tensor.file} holds ${tensor.bytes.byteLength} bytes, `
        + `its line says ${tensor.nbytes}`);
  }
  return cases;
}

async function attempt(stage, action) {
  try {
    return await action();
  } catch (error) {
    throw failureOf(error, stage);
  }
}

// An .ort file was optimized when it was made; an .onnx file gets what the caller asks for.
async function createSession(ort, host, options) {
  const level = host.model.endsWith(".ort") ? "disabled" : options.optimization;
  const started = host.now();
  const bytes = await host.read(host.model, MAX_MODEL_BYTES);
  const session = await attempt("load", () => ort.InferenceSession.create(bytes, {
    executionProviders: ["wasm"],
    graphOptimizationLevel: level,
  }));
  const ns = Math.round(host.now() - started);
  if (ort.env.wasm.numThreads !== host.threads)
    throw new Failure("runtime", `the runtime took ${ort.env.wasm.numThreads} threads, `
      + `not ${host.threads}`);
  return { session, ns };
}

function checkNames(session, cases) {
  const known = new Set(session.inputNames);
  cases.forEach(({ inputs, outputs }, sample) => {
    const given = new Set(inputs.map(({ name }) => name));
    const missing = session.inputNames.filter((name) => !given.has(name));
    const unknown = [...given].filter((name) => !known.has(name));
    const strange = outputs.map(({ name }) => name).filter((n) => !session.outputNames.includes(n));
    const words = [
      missing.length && `lacks the inputs ${missing.join(", ")}`,
      unknown.length && `has inputs that the model has not: ${unknown.join(", ")}`,
      strange.length && `has outputs that the model has not: ${strange.join(", ")}`,
    ].filter(Boolean);
    if (words.length) throw new Failure("bundle", `sample ${sample} ${words.join("; ")}`);
  });
}

async function report(host, session, results, sample, expected) {
  for (const [index, name] of session.outputNames.entries()) {
    const tensor = results[name];
    const bytes = bytesOf(tensor, name);
    const file = `${String(sample).padStart(3, "0")}.output.${index}.bin`;
    if (host.write) await attempt("output", () => host.write(file, bytes));
    host.emit({
      event: "output", sample, index, name, dtype: tensor.type, shape: [...tensor.dims],
      file: host.write ? file : null, sha256: await host.sha256(bytes),
    });
    host.inspect?.(sample, index, name, tensor, expected.find((wanted) => wanted.name === name));
  }
}

async function checkSamples(ort, host, session, cases) {
  const feeds = cases.map(({ inputs }) => Object.fromEntries(
    inputs.map((tensor) => [tensor.name, toTensor(ort, tensor)])));
  for (const [sample, feed] of feeds.entries()) {
    const started = host.now();
    const results = await attempt("run", () => session.run(feed));
    if (sample === 0) host.emit({ event: "first", ns: Math.round(host.now() - started) });
    await report(host, session, results, sample, cases[sample].outputs);
  }
  return feeds[0];
}

export async function warmUp(once, options, now) {
  const started = now();
  const times = [];
  for (;;) {
    const spent = now() - started;
    const stable = settled(times);
    const enough = times.length >= options.warmup && spent >= options["warmup-ns"];
    if ((enough && stable) || spent >= options["warmup-limit-ns"])
      return { runs: times.length, ns: Math.round(spent), stable };
    const before = now();
    await once();
    times.push(now() - before);
  }
}

// Runs per reading of the clock: one, unless the clock is too coarse for this model. The fastest
// of three readings decides, as one interruption can make any reading long.
export async function batchFor(once, now, tick) {
  const enough = TICKS * tick;
  for (let batch = 1; ; ) {
    let fastest = Infinity;
    for (let reading = 0; tick && reading < 3; reading += 1) {
      const before = now();
      for (let run = 0; run < batch; run += 1) await once();
      fastest = Math.min(fastest, now() - before);
    }
    if (fastest >= enough || batch >= MOST_RUNS) return batch;
    const wanted = Math.ceil((1.1 * batch * enough) / Math.max(fastest, tick));
    batch = Math.min(MOST_RUNS, Math.max(batch + 1, Math.min(wanted, 10 * batch)));
  }
}

export async function timedLoop(once, options, host, batch) {
  const samples = [];
  const [cpu, switches, started] = [host.cpu(), host.switches(), host.now()];
  let wall = 0;
  do {
    const before = host.now();
    for (let run = 0; run < batch; run += 1) await once();
    const after = host.now();
    samples.push(Math.round((after - before) / batch));
    wall = after - started;
  } while (wall < options["max-ns"]
    && (samples.length * batch < options.iterations || wall < options["min-ns"]));
  const since = (now, then) => (then < 0 ? -1 : Math.round(now - then));
  return {
    samples, batch, runs: samples.length * batch, wall_ns: Math.round(wall),
    cpu_ns: since(host.cpu(), cpu), involuntary_switches: since(host.switches(), switches),
  };
}

function environment(ort, host, options) {
  return {
    event: "env", protocol: PROTOCOL, runner: "js", runtime: "onnxruntime",
    version: ort.env.versions.web, arch: host.arch, os: host.os, threads: host.threads,
    provider: options.provider,
    optimization: host.model.endsWith(".ort") ? "disabled" : options.optimization,
    ...host.extra,
  };
}

// Peaks in bytes: of what `host.extra.memory_scope` says, and of the WebAssembly memory alone.
function memory(host, loadPeak) {
  return {
    event: "memory", peak_bytes: host.peak(), load_peak_bytes: loadPeak, wasm_bytes: host.wasm(),
  };
}

// `host`: model and runtime (their paths in the bundle), threads (already possible here), arch,
// os, extra; read(path, limit, optional), sha256(bytes), write(file, bytes) or nothing; now() and
// cpu() in ns, switches(), peak() and wasm() in bytes, -1 where unknown; tick (of a coarse clock,
// ns) or 0; emit(event), phase(name), inspect(sample, index, name, tensor, golden).
export async function measure(ort, host, options) {
  host.phase?.("verify");
  const manifest = await readManifest(host);
  const cases = await readCases(host, manifest);
  // Also without a manifest: what is loaded below is then in the system's or browser's cache.
  for (const path of [host.model, ...host.runtime])
    await checkedRead(host, manifest, path, MAX_MODEL_BYTES);
  ort.env.wasm.numThreads = host.threads;
  host.emit(environment(ort, host, options));
  host.phase?.("load");
  const { session, ns } = await createSession(ort, host, options);
  checkNames(session, cases);
  host.emit({ event: "load", ns });
  const loadPeak = host.peak();
  host.phase?.("check");
  const feed = await checkSamples(ort, host, session, cases);
  if (options["check-only"]) {
    host.emit(memory(host, loadPeak));
    host.emit({ event: "end", runs: 0, wall_ns: 0, cpu_ns: 0, involuntary_switches: 0 });
    return;
  }
  await timedRuns(host, options, loadPeak, () => session.run(feed));
}

async function timedRuns(host, options, loadPeak, once) {
  host.phase?.("warmup");
  const warm = await attempt("run", () => warmUp(once, options, host.now));
  host.emit({ event: "warmup", ...warm });
  host.phase?.("measure");
  const { samples, batch, ...end } = await attempt("run",
    async () => timedLoop(once, options, host, await batchFor(once, host.now, host.tick)));
  for (let from = 0; from < samples.length; from += PER_LINE)
    host.emit({ event: "sample", ns: samples.slice(from, from + PER_LINE) });
  host.emit(memory(host, loadPeak));
  host.emit({ event: "end", ...end, ...(batch > 1 && { batch }) });
}

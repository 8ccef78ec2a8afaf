// Runs the model beside the page, so that the page stays alive and can stop it at any time.
// Takes one message {config, options}; posts {event}, {phase, path}, {parity} and one {ended}.

import { measure, timerTick, watchMemory } from "../runner/edge_runner.mjs";
import { Failure, failureOf } from "../runner/samples.mjs";
import { compare } from "./compare.mjs";

const now = () => performance.now() * 1e6;
const root = new URL("../", import.meta.url);
const unknown = () => -1;

// The body of `response`, never more than `limit` bytes of it.
async function bounded(response, path, limit) {
  const parts = [];
  let size = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.byteLength;
    if (size > limit) {
      await reader.cancel();
      throw new Failure("bundle", `${path} holds more than ${limit} bytes`);
    }
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

async function download(path, limit, optional) {
  postMessage({ phase: "download", path });
  let response;
  try {
    response = await fetch(new URL(path, root), { credentials: "same-origin" });
  } catch (error) {
    throw new Failure("bundle", `cannot fetch ${path}: ${error.message}`);
  }
  if (optional && response.status === 404) return null;
  if (!response.ok) throw new Failure("bundle", `cannot fetch ${path}: HTTP ${response.status}`);
  return bounded(response, path, limit);
}

// The model is fetched once, before any clock runs: load times leave the network out.
async function readerOf(model) {
  const bytes = await download(model, 2 ** 31);
  return async (path, limit, optional) =>
    (path === model ? bytes : download(path, limit, optional));
}

async function sha256(bytes) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Threads need shared memory, which only a cross-origin isolated page has: else it is one thread.
function threadsFor(asked) {
  return self.crossOriginIsolated && typeof SharedArrayBuffer === "function" ? asked : 1;
}

function inspector(tolerance) {
  return (sample, index, name, tensor, golden) => {
    const found = golden
      ? compare(tensor, golden, tolerance) : { ok: null, notes: ["no golden output"] };
    const what = { sample, index, name, dtype: tensor.type, shape: [...tensor.dims] };
    postMessage({ parity: { ...what, ...found } });
  };
}

async function hostOf(config, options) {
  const wasm = watchMemory();
  const tick = timerTick(now);
  return {
    model: config.artifact,
    runtime: config.runtime,
    threads: threadsFor(options.threads),
    arch: "wasm32",
    os: (navigator.userAgentData?.platform || navigator.platform || "unknown").toLowerCase(),
    extra: {
      engine: navigator.userAgent, threads_asked: options.threads, memory_scope: "wasm",
      isolated: self.crossOriginIsolated, timer_ns: tick,
    },
    read: await readerOf(config.artifact),
    sha256, now, tick, wasm,
    cpu: unknown,
    switches: unknown,
    peak: wasm,
    emit: (event) => postMessage({ event }),
    phase: (phase) => postMessage({ phase }),
    inspect: inspector(config.tolerance),
  };
}

async function main({ config, options }) {
  if (!self.isSecureContext)
    throw new Failure("runtime", "browsers hash files only over https or on localhost; "
      + "open the page there (on a phone: adb reverse tcp:8000 tcp:8000)");
  const host = await hostOf(config, options);
  let ort;
  try {
    ort = await import(new URL(config.runtime[0], root).href);
  } catch (error) {
    throw new Failure("runtime", `cannot load ${config.runtime[0]}: ${failureOf(error).message}`);
  }
  await measure(ort, host, { ...options, provider: config.provider, optimization: "disabled" });
}

function fail(thrown) {
  const { stage, message } = failureOf(thrown);
  postMessage({ event: { event: "error", stage, message } });
  postMessage({ ended: "failed" });
}

self.addEventListener("unhandledrejection", (event) => fail(event.reason));
self.addEventListener("message", ({ data }) => {
  main(data).then(() => postMessage({ ended: "done" }), fail);
}, { once: true });

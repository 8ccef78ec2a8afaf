// The runner for Node: loads the bundle's own .mjs and .wasm, the very files that a browser
// gets, checks the samples, measures, prints JSON lines (and nothing else) on standard output.
//   node runner/node_runner.mjs --bundle DIR [--output DIR] [--iterations N] [--check-only] ...

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { open, readdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { measure, OPTIONS, PROTOCOL, watchMemory } from "./edge_runner.mjs";
import { Failure, failureOf } from "./samples.mjs";

const WORDS = ["bundle", "output", "library", "profile", "provider", "optimization"];
const FLAGS = ["check-only", "version"];
const LEVELS = ["disabled", "basic", "extended", "all"];
const PROVIDERS = ["CPUExecutionProvider", "wasm"]; // one and the same: ORT's name, and the web's
const PLAIN_WASM = "ort-wasm-simd-threaded.wasm";
const ARCHITECTURES = { x64: "x86_64", arm64: "aarch64", ia32: "i686", arm: "armv7l" };

const emit = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
const refuse = (message) => new Failure("arguments", message);

function parseArguments(words) {
  const options = { ...OPTIONS, provider: PROVIDERS[0], optimization: LEVELS[0] };
  for (let at = 0; at < words.length; at += 1) {
    const name = words[at].startsWith("--") ? words[at].slice(2) : "";
    if (FLAGS.includes(name)) options[name] = true;
    else if (!WORDS.includes(name) && !Object.hasOwn(OPTIONS, name))
      throw refuse(`unknown argument ${JSON.stringify(words[at])}`);
    else if (at + 1 === words.length) throw refuse(`--${name} needs a value`);
    else options[name] = valueOf(name, words[(at += 1)]);
  }
  return options;
}

function valueOf(name, word) {
  if (WORDS.includes(name)) return word;
  if (!/^[0-9]{1,15}$/.test(word))
    throw refuse(`--${name} needs a whole number, not ${JSON.stringify(word)}`);
  return Number(word);
}

function checkOptions(options) {
  if (!options.bundle) throw refuse("--bundle DIR is needed");
  if (!LEVELS.includes(options.optimization))
    throw refuse(`--optimization is one of ${LEVELS.join(", ")}`);
  if (options.iterations < 1 || options.threads < 1)
    throw refuse("--iterations and --threads count from 1");
  // ORT's browser build starts its threads from a page's origin, and Node has none.
  if (options.threads > 1)
    throw refuse("under Node the browser's runtime has one thread; more need the page");
  if (options.profile) throw refuse("the browser's runtime writes no profile");
  if (!PROVIDERS.includes(options.provider))
    throw new Failure("runtime", `the runtime has no provider ${JSON.stringify(options.provider)}`);
}

// The content of a regular file of at most `limit` bytes; the size is checked before the read.
async function readBounded(folder, name, limit, optional) {
  let file;
  try {
    file = await open(path.join(folder, name), "r");
    const info = await file.stat();
    if (!info.isFile()) throw new Failure("bundle", `${name} is no file`);
    if (info.size > limit)
      throw new Failure("bundle", `${name} holds ${info.size} bytes, at most ${limit} are right`);
    const { buffer, byteOffset, byteLength } = await file.readFile();
    return new Uint8Array(buffer, byteOffset, byteLength);
  } catch (error) {
    if (optional && error.code === "ENOENT") return null;
    throw error instanceof Failure
      ? error : new Failure("bundle", `cannot read ${name}: ${error.code ?? error.message}`);
  } finally {
    await file?.close();
  }
}

async function entries(folder, name) {
  try {
    return (await readdir(path.join(folder, name))).sort();
  } catch (error) {
    throw new Failure("bundle", `cannot read ${name || "the bundle"}: ${error.code}`);
  }
}

async function only(folder, name, pattern, what) {
  const found = (await entries(folder, name)).filter((entry) => pattern.test(entry));
  if (found.length !== 1)
    throw new Failure("bundle", `the bundle has ${found.length} ${what}, exactly one is right`);
  return found[0];
}

// [module of ORT (absolute path), its .wasm (absolute path)]
async function findRuntime(options) {
  const chosen = options.library;
  const folder = chosen ? path.dirname(chosen) : path.join(options.bundle, "runtime");
  const module = chosen
    ? path.basename(chosen)
    : await only(options.bundle, "runtime", /^ort\..*\.mjs$/, "runtime/ort.*.mjs");
  const names = (await entries(folder, "")).filter((entry) => entry.endsWith(".wasm"));
  // A whole npm package has one for each kind of build; the plain one is the wasm provider's.
  const plain = names.length > 1 ? names.filter((name) => name === PLAIN_WASM) : names;
  if (plain.length !== 1)
    throw new Failure("bundle", `${names.length} .wasm files beside ${module}, one is right`);
  return [path.resolve(folder, module), path.resolve(folder, plain[0])];
}

async function loadRuntime(module, wasm) {
  try {
    const ort = await import(pathToFileURL(module).href);
    ort.env.wasm.wasmBinary = await readBounded(path.dirname(wasm), path.basename(wasm), 2 ** 31);
    return ort;
  } catch (error) {
    const { message } = failureOf(error);
    throw new Failure("runtime", `cannot load ${path.basename(module)}: ${message}`);
  }
}

// Peak resident set of this process in bytes (all of Node, not the model alone), -1 if unknown.
function peakBytes() {
  try {
    const line = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync("/proc/self/status", "latin1"));
    return line ? Number(line[1]) * 1024 : -1;
  } catch {
    const { maxRSS } = process.resourceUsage(); // kilobytes
    return maxRSS ? maxRSS * 1024 : -1;
  }
}

function resetPeak() {
  try {
    writeFileSync("/proc/self/clear_refs", "5");
  } catch {
    // Not Linux, or not allowed: the peak then includes Node's own start.
  }
}

function hostOf(options, model, [module, wasm]) {
  const bundle = path.resolve(options.bundle);
  const inside = (file) => path.relative(bundle, file).split(path.sep).join("/");
  return {
    model,
    runtime: options.library ? [] : [inside(module), inside(wasm)],
    threads: options.threads,
    arch: ARCHITECTURES[process.arch] ?? process.arch,
    os: process.platform,
    extra: { engine: `node ${process.versions.node}`, memory_scope: "process" },
    read: (name, limit, optional) => readBounded(options.bundle, name, limit, optional),
    sha256: async (bytes) => createHash("sha256").update(bytes).digest("hex"),
    write: options.output && ((file, bytes) => writeFile(path.join(options.output, file), bytes)),
    now: () => performance.now() * 1e6,
    cpu: () => { const { user, system } = process.cpuUsage(); return (user + system) * 1000; },
    switches: () => process.resourceUsage().involuntaryContextSwitches,
    peak: peakBytes,
    wasm: watchMemory(),
    tick: 0, // Node's clock counts nanoseconds: every run is read on its own
    emit,
  };
}

async function main(words) {
  const options = parseArguments(words);
  if (options.version) return emit({ event: "version", protocol: PROTOCOL, runner: "js" });
  checkOptions(options);
  const model = await only(
    options.bundle, "", /^model\.(ort|onnx)$/, "artifacts (model.ort or model.onnx)");
  const runtime = await findRuntime(options);
  const ort = await loadRuntime(...runtime);
  resetPeak();
  return measure(ort, hostOf(options, model, runtime), options);
}

let ended = false;

// The exit code waits until what was printed is out; the first failure is the one that counts.
function end(code, event) {
  if (ended) return;
  ended = true;
  process.stdout.write(event ? `${JSON.stringify(event)}\n` : "", () => process.exit(code));
}

function fail(thrown) {
  const { stage, message } = failureOf(thrown);
  end(1, { event: "error", stage, message });
}

console.log = console.error; // standard output belongs to the JSON lines
process.on("uncaughtException", fail); // an abort inside wasm may be thrown outside of any await
main(process.argv.slice(2)).then(() => end(0), fail);

// samples/samples.tsv and raw tensors: the same limits as edge/samples.py. The folder is
// untrusted: names, shapes and sizes are checked before anything is read.

export const ITEM_BYTES = {
  bool: 1, int8: 1, uint8: 1, int16: 2, uint16: 2, float16: 2, int32: 4, uint32: 4, float32: 4,
  int64: 8, uint64: 8, float64: 8,
};
export const MAX_TENSORS = 10_000;
export const MAX_TENSOR_BYTES = 2 ** 31;
export const MAX_INDEX_BYTES = 16 * 2 ** 20;
const MAX_DIMS = 32;
const NUMBER = /^[0-9]{1,10}$/;
const SHAPE = /^(-|[0-9]{1,10}(x[0-9]{1,10})*)$/;
const FILE = /^(?!\.+$)[0-9A-Za-z_.-]+$/;

// float16 stays in its bits: Float16Array is not everywhere yet, and ORT takes either.
const ARRAYS = {
  bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array,
  float16: Uint16Array, int32: Int32Array, uint32: Uint32Array, float32: Float32Array,
  int64: BigInt64Array, uint64: BigUint64Array, float64: Float64Array,
};

// A failure that becomes one "error" line; `stage` is the protocol's word for where.
export class Failure extends Error {
  constructor(stage, message) {
    super(message);
    this.stage = stage;
  }
}

// Whatever was thrown as a Failure: C++ exceptions come out of wasm as bare numbers.
export function failureOf(thrown, stage = "run") {
  if (thrown instanceof Failure) return thrown;
  if (thrown instanceof Error) {
    const text = thrown.message || thrown.name;
    return new Failure(/no available backend found/.test(text) ? "runtime" : stage, text);
  }
  const text = typeof thrown === "number" ? `native exception ${thrown} (it has no text)` : thrown;
  return new Failure(stage, String(text));
}

function parseLine(line, number) {
  const bad = () => new Failure("bundle", `samples/samples.tsv:${number} is no line of samples: `
    + JSON.stringify(line.slice(0, 200)));
  const fields = line.split("\t");
  if (fields.length !== 7) throw bad();
  const [sample, role, index, dtype, shape, file, name] = fields;
  if (!(role === "input" || role === "output") || !Object.hasOwn(ITEM_BYTES, dtype)) throw bad();
  if (!NUMBER.test(sample) || !NUMBER.test(index) || (sample + index).length > 11) throw bad();
  if (!SHAPE.test(shape) || !FILE.test(file) || /[\r\0]/.test(name)) throw bad();
  const dims = shape === "-" ? [] : shape.split("x").map(Number);
  // In floating point a huge product is merely large: it cannot wrap around below the limit.
  const count = dims.includes(0) ? 0 : dims.reduce((product, dim) => product * dim, 1);
  const nbytes = ITEM_BYTES[dtype] * count;
  if (dims.length > MAX_DIMS || !(nbytes <= MAX_TENSOR_BYTES)) throw bad();
  return { sample: Number(sample), role, index: Number(index), dtype, dims, file, name, nbytes };
}

// All tensors of the index, `bytes` being the file's content.
export function parseSamples(bytes) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Failure("bundle", "samples/samples.tsv is not UTF-8");
  }
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  if (lines.length > MAX_TENSORS)
    throw new Failure("bundle", `samples/samples.tsv lists more than ${MAX_TENSORS} tensors`);
  return lines.map((line, at) => parseLine(line, at + 1));
}

// Tensors by sample: [{inputs, outputs}], samples counted from 0 without a gap.
export function groupSamples(tensors) {
  const cases = [];
  for (const tensor of [...tensors].sort((a, b) => a.sample - b.sample || a.index - b.index)) {
    if (tensor.sample > cases.length)
      throw new Failure("bundle", `samples/samples.tsv has no sample ${cases.length}`);
    if (tensor.sample === cases.length) cases.push({ inputs: [], outputs: [] });
    const list = cases[tensor.sample][`${tensor.role}s`];
    if (list.some(({ name }) => name === tensor.name))
      throw new Failure("bundle", `samples/samples.tsv: sample ${tensor.sample} has the `
        + `${tensor.role} ${JSON.stringify(tensor.name)} twice`);
    list.push(tensor);
  }
  if (!cases.length) throw new Failure("bundle", "samples/samples.tsv lists no sample");
  return cases;
}

// Values of little-endian `bytes`; WebAssembly is little endian, and so is every host of it.
export function valuesOf(dtype, bytes) {
  return new ARRAYS[dtype](bytes.slice().buffer);
}

export function toTensor(ort, { dtype, bytes, dims }) {
  return new ort.Tensor(dtype, valuesOf(dtype, bytes), dims);
}

// The raw bytes of an output tensor, as samples hold them.
export function bytesOf(tensor, name) {
  if (!tensor || !Object.hasOwn(ITEM_BYTES, tensor.type))
    throw new Failure("output", `the output ${JSON.stringify(name)} is of a type that samples `
      + `cannot hold: ${tensor?.type ?? "no tensor"}`);
  const { buffer, byteOffset, byteLength } = tensor.data;
  return new Uint8Array(buffer, byteOffset, byteLength);
}

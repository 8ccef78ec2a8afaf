// Outputs against the golden ones: the rule of edge/parity.py. A floating-point element is within
// tolerance when |a - e| <= max_abs + max_rel * max(|e|, floor). Dtype, shape and the places of
// NaN and infinities must agree; integers must be equal unless max_abs >= 1, booleans always.

import { bytesOf, valuesOf } from "../runner/samples.mjs";

const FLOATS = ["float16", "float32", "float64"];

// IEEE binary16, from its bits.
export function halfToNumber(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity;
  return exponent
    ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -14 * (fraction / 1024);
}

function numbers(dtype, bytes) {
  const values = valuesOf(dtype, bytes);
  return dtype === "float16" ? Float64Array.from(values, halfToNumber) : values;
}

// Largest differences, signal and noise power; `beyond` counts elements that break the rule.
function floatFigures(actual, expected, { max_abs, max_rel, floor }) {
  const found = {
    max_abs: 0, max_rel: 0, beyond: 0, misplaced: 0, finite: 0, signal: 0, noise: 0,
  };
  for (let at = 0; at < expected.length; at += 1) {
    const [a, e] = [actual[at], expected[at]];
    if (!Number.isFinite(a) || !Number.isFinite(e)) {
      if (!Object.is(a, e)) found.misplaced += 1;
      continue;
    }
    found.finite += 1;
    const gap = Math.abs(a - e);
    const size = Math.max(Math.abs(e), floor);
    found.max_abs = Math.max(found.max_abs, gap);
    found.max_rel = Math.max(found.max_rel, gap / size);
    if (gap > (max_abs ?? 0) + (max_rel ?? 0) * size) found.beyond += 1;
    found.signal += e * e;
    found.noise += (a - e) ** 2;
  }
  return found;
}

// 64-bit integers are compared as BigInt: a double cannot hold them.
function integerFigures(dtype, actual, expected, { max_abs }) {
  const allowed = dtype === "bool" || !(max_abs >= 1) ? 0 : max_abs;
  const found = { max_abs: 0, beyond: 0 };
  for (let at = 0; at < expected.length; at += 1) {
    if (actual[at] === expected[at]) continue;
    const gap = Math.abs(Number(actual[at] - expected[at]));
    found.max_abs = Math.max(found.max_abs, gap);
    if (gap > allowed) found.beyond += 1;
  }
  return found;
}

// Fraction of the rows along the last axis whose largest element is (one of) the largest expected;
// a row with NaN never agrees.
function argmaxAgreement(actual, expected, width) {
  let agreed = 0;
  for (let row = 0; row < expected.length; row += width) {
    const [mine, wanted] = [actual, expected].map((values) => values.subarray(row, row + width));
    const at = mine.reduce((best, value, i) => (value > mine[best] ? i : best), 0);
    if (mine.every((v) => !Number.isNaN(v)) && wanted.every((v) => v <= wanted[at])) agreed += 1;
  }
  return agreed / (expected.length / width);
}

function floatVerdict(actual, golden, tolerance) {
  const expected = numbers(golden.dtype, golden.bytes);
  const found = floatFigures(actual, expected, tolerance);
  const sqnr = found.noise ? 10 * Math.log10(found.signal / found.noise) : Infinity;
  const width = golden.dims.at(-1) ?? 1;
  const argmax = width > 1 && expected.length
    ? argmaxAgreement(actual, expected, width) : null;
  const notes = [
    expected.length && !found.finite && "no finite element to compare",
    found.misplaced && `${found.misplaced} NaN or infinite at other places`,
    ruled(tolerance) && found.beyond && `${found.beyond} of ${expected.length} beyond tolerance`,
    tolerance.sqnr_db != null && sqnr < tolerance.sqnr_db && `SQNR below ${tolerance.sqnr_db} dB`,
    tolerance.argmax != null && argmax != null && argmax < tolerance.argmax
      && `argmax agrees in fewer than ${tolerance.argmax}`,
  ];
  return { ...found, sqnr_db: sqnr, argmax, notes };
}

// With SQNR or argmax as the only limits, elements have none of their own.
function ruled({ max_abs, max_rel, sqnr_db, argmax }) {
  return max_abs != null || max_rel != null || (sqnr_db == null && argmax == null);
}

// `golden`: {dtype, dims, bytes} of the samples; `tensor`: an output of ORT. `ok` is the verdict.
export function compare(tensor, golden, tolerance) {
  const said = `${tensor.type} ${tensor.dims.join("x") || "scalar"}`;
  const wanted = `${golden.dtype} ${golden.dims.join("x") || "scalar"}`;
  if (said !== wanted) return { ok: false, notes: [`is ${said}, ${wanted} was expected`] };
  const actual = numbers(golden.dtype, bytesOf(tensor, ""));
  const { max_abs, max_rel = null, sqnr_db = null, argmax = null, beyond, notes } =
    FLOATS.includes(golden.dtype)
      ? floatVerdict(actual, golden, tolerance)
      : integerVerdict(actual, golden, tolerance);
  const reasons = notes.filter(Boolean);
  return { ok: !reasons.length, max_abs, max_rel, sqnr_db, argmax, beyond, notes: reasons };
}

function integerVerdict(actual, golden, tolerance) {
  const expected = numbers(golden.dtype, golden.bytes);
  const found = integerFigures(golden.dtype, actual, expected, tolerance);
  return { ...found, notes: [found.beyond && `${found.beyond} of ${expected.length} differ`] };
}

package dev.edgewright.bench

import java.nio.ByteBuffer
import java.nio.ByteOrder
import kotlin.math.abs
import kotlin.math.log10
import kotlin.math.max

/**
 * How far outputs may be from the golden ones. A floating-point element `a` is within it when
 * `|a - e| <= maxAbs + maxRel * max(|e|, floor)`; a limit that is not given counts as 0. `sqnrDb`
 * and `argmax` (fraction of the rows) are limits of their own. With no limit at all the values
 * must be equal. The host of the build uses the same rule.
 */
data class EdgeTolerance(
    val maxAbs: Double?,
    val maxRel: Double?,
    val floor: Double,
    val sqnrDb: Double?,
    val argmax: Double?,
)

/** An output as the device computed it; little-endian bytes, C order. */
class EdgeOutput(
    val name: String,
    val dtype: String,
    val shape: List<Long>,
    val bytes: ByteArray,
)

/** Why `actual` is not within `tolerance` of the golden tensor; null when it is. */
fun divergence(
    golden: EdgeTensor,
    expected: ByteArray,
    actual: EdgeOutput,
    tolerance: EdgeTolerance,
): String? {
    if (actual.dtype != golden.dtype) return "dtype ${actual.dtype}, expected ${golden.dtype}"
    if (actual.shape != golden.shape) return "shape ${actual.shape}, expected ${golden.shape}"
    if (expected.isEmpty()) return null
    if (!golden.dtype.startsWith("float"))
        return integers(golden.dtype, expected, actual, tolerance)
    val e = decode(golden.dtype, expected)
    val a = decode(golden.dtype, actual.bytes)
    val t = tolerance
    return notFinite(e, a) ?: elements(e, a, t) ?: sqnr(e, a, t) ?: argmax(e, a, golden.shape, t)
}

private fun integers(
    dtype: String,
    expected: ByteArray,
    actual: EdgeOutput,
    tolerance: EdgeTolerance,
): String? {
    val allowed = if (dtype == "bool") 0.0 else tolerance.maxAbs?.takeIf { it >= 1 } ?: 0.0
    val e = little(expected)
    val a = little(actual.bytes)
    val width = ITEM_BYTES.getValue(dtype)
    val largest =
        (expected.indices step width).maxOf { at ->
            gap(whole(e, at, dtype), whole(a, at, dtype), unsigned = dtype == "uint64")
        }
    return if (largest <= allowed) null else "integers differ by up to $largest, allowed $allowed"
}

/** The larger minus the smaller: always fits 64 bits without a sign. */
private fun gap(e: Long, a: Long, unsigned: Boolean): Double {
    val larger = if (unsigned) e.toULong() >= a.toULong() else e >= a
    return (if (larger) e - a else a - e).toULong().toDouble()
}

private fun notFinite(e: DoubleArray, a: DoubleArray): String? {
    val other =
        e.indices.firstOrNull { !(e[it].isFinite() && a[it].isFinite()) && !same(e[it], a[it]) }
    if (other != null) return "element $other is ${a[other]}, expected ${e[other]}"
    return if (e.none(Double::isFinite)) "no finite element to compare" else null
}

private fun same(e: Double, a: Double): Boolean = e == a || (e.isNaN() && a.isNaN())

private fun elements(e: DoubleArray, a: DoubleArray, t: EdgeTolerance): String? {
    val none = t.maxAbs == null && t.maxRel == null
    if (none && (t.sqnrDb != null || t.argmax != null)) return null
    val limit = { i: Int -> (t.maxAbs ?: 0.0) + (t.maxRel ?: 0.0) * max(abs(e[i]), t.floor) }
    val beyond = e.indices.filter { e[it].isFinite() && abs(a[it] - e[it]) > limit(it) }
    val worst = beyond.maxByOrNull { abs(a[it] - e[it]) - limit(it) } ?: return null
    return "${beyond.size} of ${e.size} elements: ${a[worst]} at $worst, expected ${e[worst]}"
}

private fun sqnr(e: DoubleArray, a: DoubleArray, t: EdgeTolerance): String? {
    val wanted = t.sqnrDb ?: return null
    var signal = 0.0
    var noise = 0.0
    for (i in e.indices) {
        if (!e[i].isFinite()) continue
        signal += e[i] * e[i]
        noise += (a[i] - e[i]) * (a[i] - e[i])
    }
    val found = 10 * log10(signal / noise)
    return if (noise == 0.0 || found >= wanted) null else "SQNR $found dB, wanted $wanted dB"
}

private fun argmax(e: DoubleArray, a: DoubleArray, shape: List<Long>, t: EdgeTolerance): String? {
    val width = shape.lastOrNull()?.toInt() ?: return null
    val wanted = t.argmax?.takeIf { width > 1 && e.isNotEmpty() } ?: return null
    val starts = e.indices step width
    val agreed = starts.count { start ->
        val row = start until start + width
        val chosen = row.maxByOrNull { a[it] } ?: start
        row.none { a[it].isNaN() || e[it].isNaN() } && e[chosen] == row.maxOf { e[it] }
    }
    val found = agreed.toDouble() / (e.size / width)
    return if (found >= wanted) null else "argmax agrees in $found of the rows, wanted $wanted"
}

private fun little(bytes: ByteArray): ByteBuffer =
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)

private fun decode(dtype: String, bytes: ByteArray): DoubleArray {
    val data = little(bytes)
    val width = ITEM_BYTES.getValue(dtype)
    return DoubleArray(bytes.size / width) { i ->
        when (dtype) {
            "float32" -> data.getFloat(i * width).toDouble()
            "float64" -> data.getDouble(i * width)
            else -> half(data.getShort(i * width).toInt() and 0xffff)
        }
    }
}

private fun whole(data: ByteBuffer, at: Int, dtype: String): Long =
    when (dtype) {
        "int64", "uint64" -> data.getLong(at)
        "int32" -> data.getInt(at).toLong()
        "uint32" -> data.getInt(at).toLong() and 0xffffffffL
        "int16" -> data.getShort(at).toLong()
        "uint16" -> data.getShort(at).toLong() and 0xffffL
        "int8" -> data.get(at).toLong()
        else -> data.get(at).toLong() and 0xffL
    }

/** IEEE 754 binary16: 1 bit sign, 5 bits exponent, 10 bits fraction. */
private fun half(bits: Int): Double {
    val exponent = bits shr 10 and 0x1f
    val fraction = bits and 0x3ff
    val size =
        when (exponent) {
            0 -> Math.scalb(fraction.toDouble(), -24)
            0x1f -> if (fraction == 0) Double.POSITIVE_INFINITY else Double.NaN
            else -> Math.scalb((fraction or 0x400).toDouble(), exponent - 25)
        }
    return if (bits and 0x8000 == 0) size else -size
}

package dev.edgewright.bench

import java.io.InputStream
import java.nio.ByteBuffer

/** The files that the runner reads: the model, and the golden samples. */
interface EdgeBundle {
    /** Name of the artifact: it ends in .ort or .onnx. */
    val artifact: String

    /** The artifact's content, mapped where that is possible. */
    fun model(): ByteBuffer

    /** A file of the samples folder. */
    fun sample(name: String): InputStream
}

/** One tensor of the golden samples: a line of samples.tsv. */
data class EdgeTensor(
    val sample: Int,
    val role: String,
    val index: Int,
    val dtype: String,
    val shape: List<Long>,
    val file: String,
    val name: String,
) {
    val byteCount: Long
        get() = ITEM_BYTES.getValue(dtype) * shape.fold(1L, Math::multiplyExact)
}

/** Bytes of one element, by numpy's name of the type. */
val ITEM_BYTES: Map<String, Int> =
    mapOf(
        "bool" to 1, "int8" to 1, "uint8" to 1, "int16" to 2, "uint16" to 2, "float16" to 2,
        "int32" to 4, "uint32" to 4, "float32" to 4, "int64" to 8, "uint64" to 8, "float64" to 8,
    )

private const val INDEX = "samples.tsv"
private const val MAX_INDEX_BYTES = 16L shl 20
private const val MAX_TENSOR_BYTES = Int.MAX_VALUE.toLong() - 64
private val NUMBER = Regex("[0-9]{1,9}")
private val SHAPE = Regex("-|[0-9]{1,10}(x[0-9]{1,10}){0,31}")
private val FILE = Regex("[0-9A-Za-z_-][0-9A-Za-z_.-]*")

/** All lines of samples.tsv; EdgeFailure("bundle") when one is not as it should be. */
fun readIndex(bundle: EdgeBundle): List<EdgeTensor> {
    val text = String(bundle.sample(INDEX).use { readAtMost(it, MAX_INDEX_BYTES) }, Charsets.UTF_8)
    val lines = text.split('\n').filter { it.isNotEmpty() }
    return lines.mapIndexed { number, line ->
        parseLine(line) ?: throw EdgeFailure("bundle", "$INDEX:${number + 1} is no line of samples")
    }
}

private fun parseLine(line: String): EdgeTensor? {
    val fields = line.split('\t')
    if (fields.size != 7) return null
    val (sample, role, index, dtype, shape) = fields
    val fits =
        NUMBER.matches(sample) && (role == "input" || role == "output") && NUMBER.matches(index) &&
            dtype in ITEM_BYTES && SHAPE.matches(shape) && FILE.matches(fields[5])
    if (!fits) return null
    val dims = if (shape == "-") listOf() else shape.split('x').map(String::toLong)
    val tensor = EdgeTensor(sample.toInt(), role, index.toInt(), dtype, dims, fields[5], fields[6])
    val size = runCatching { tensor.byteCount }.getOrDefault(Long.MAX_VALUE)
    return tensor.takeIf { size <= MAX_TENSOR_BYTES }
}

/** The tensor's raw little-endian bytes; EdgeFailure("bundle") when the size is another. */
fun readTensor(bundle: EdgeBundle, tensor: EdgeTensor): ByteArray {
    val bytes = bundle.sample(tensor.file).use { readAtMost(it, tensor.byteCount) }
    if (bytes.size.toLong() == tensor.byteCount) return bytes
    throw EdgeFailure("bundle", "${tensor.file} holds other than ${tensor.byteCount} bytes")
}

/** Reads to the end, but never more than one byte beyond `limit`. */
private fun readAtMost(stream: InputStream, limit: Long): ByteArray {
    val out = java.io.ByteArrayOutputStream()
    val chunk = ByteArray(1 shl 16)
    while (out.size() <= limit) {
        val wanted = minOf(chunk.size.toLong(), limit + 1 - out.size()).toInt()
        val count = stream.read(chunk, 0, wanted)
        if (count < 0) break
        out.write(chunk, 0, count)
    }
    return out.toByteArray()
}

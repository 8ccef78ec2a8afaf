package dev.edgewright.bench

import ai.onnxruntime.OnnxJavaType
import ai.onnxruntime.OnnxTensor
import ai.onnxruntime.OrtEnvironment
import ai.onnxruntime.OrtException
import ai.onnxruntime.OrtProvider
import ai.onnxruntime.OrtSession
import ai.onnxruntime.TensorInfo
import java.io.File
import java.io.IOException
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.security.MessageDigest
import kotlin.math.abs

/** What the runner needs of the system that it runs on. */
interface EdgeHost {
    val os: String

    /** Folder for output tensors and profiles; null writes none. */
    val output: File?

    /** Processor time of this process in nanoseconds; -1 where unknown. */
    fun cpuNs(): Long

    /** Takes one JSON line of the protocol. */
    fun emit(line: String)
}

/**
 * The runner: loads the bundle's model, computes the golden samples, measures, and says all of it
 * as JSON lines (protocol 1). `inspect` sees each output together with its golden tensor.
 */
class EdgeRunner(
    private val bundle: EdgeBundle,
    private val host: EdgeHost,
    private val options: EdgeOptions,
    private val inspect: (EdgeTensor?, EdgeOutput) -> Unit = { _, _ -> },
) {
    // An .ort file was optimized when it was made; an .onnx file gets what is asked for.
    private val optimization =
        if (bundle.artifact.endsWith(".ort")) "disabled" else options.optimization
    private val cases by lazy { readIndex(bundle).groupBy { it.sample }.toSortedMap() }

    /** True when all went well; after a failure its event was the last line. */
    fun run(): Boolean =
        try {
            measure()
            true
        } catch (failure: EdgeFailure) {
            val message = failure.message.orEmpty().take(MAX_MESSAGE)
            say("error", "stage" to failure.stage, "message" to message)
            false
        }

    private fun say(event: String, vararg members: Pair<String, Any?>) =
        host.emit(jsonLine("event" to event, *members))

    private fun measure() {
        stage("bundle") { check(0 in cases) { "samples.tsv has no sample 0" } }
        val runtime = stage("runtime") { openRuntime() }
        val started = System.nanoTime()
        openSession(runtime).use { session ->
            say("load", "ns" to System.nanoTime() - started)
            val loadPeak = EdgeSystem.peakBytes()
            EdgeSystem.resetPeak()
            val shapes = goldenRuns(runtime, session)
            if (options.checkOnly) finish(loadPeak, Timed())
            else time(runtime, session, shapes, loadPeak)
        }
    }

    private fun openRuntime(): OrtEnvironment {
        val runtime = OrtEnvironment.getEnvironment()
        runtime.setTelemetry(false)
        say(
            "env", "protocol" to 1, "runner" to "kotlin", "runtime" to "onnxruntime",
            "version" to runtime.version, "arch" to System.getProperty("os.arch"),
            "os" to host.os, "threads" to options.threads, "provider" to options.provider,
            "optimization" to optimization,
        )
        return runtime
    }

    // ---------------------------------------------------------------------------- session
    private fun openSession(runtime: OrtEnvironment): OrtSession {
        val model = stage("bundle") { bundle.model() }
        return stage("load") { settings().use { runtime.createSession(model, it) } }
    }

    private fun settings(): OrtSession.SessionOptions {
        val made = OrtSession.SessionOptions()
        val level = OPTIMIZATION[optimization]
        made.setOptimizationLevel(
            level ?: throw EdgeFailure("arguments", "no optimization level '$optimization'")
        )
        made.setInterOpNumThreads(1)
        addProvider(made)
        options.profile?.let { made.enableProfiling(File(host.output, it).path) }
        return made
    }

    /** A provider other than the CPU must take every node: a silent fallback is a failure. */
    private fun addProvider(made: OrtSession.SessionOptions) {
        if (options.provider == CPU) return made.setIntraOpNumThreads(options.threads)
        val known = options.provider == XNNPACK
        if (!known || OrtProvider.XNNPACK !in OrtEnvironment.getAvailableProviders())
            throw EdgeFailure("runtime", "${options.provider} is not in this runtime or this app")
        // XNNPACK brings its own threads; the runtime's would only fight them for the cores.
        made.addXnnpack(mapOf("intra_op_num_threads" to options.threads.toString()))
        made.setIntraOpNumThreads(1)
        made.addConfigEntry("session.intra_op.allow_spinning", "0")
        made.addConfigEntry("session.disable_cpu_ep_fallback", "1")
    }

    // --------------------------------------------------------------------- golden samples
    /** Runs every sample once; the outputs' types and shapes of sample 0 come back. */
    private fun goldenRuns(runtime: OrtEnvironment, session: OrtSession): Map<String, TensorInfo> {
        val shapes = mutableMapOf<String, TensorInfo>()
        for ((sample, tensors) in cases) {
            feed(runtime, tensors).use { feed ->
                val started = System.nanoTime()
                val result = stage("run") { session.run(feed.tensors) }
                val spent = System.nanoTime() - started
                if (sample == 0) say("first", "ns" to spent)
                result.use {
                    session.outputNames.forEachIndexed { index, name ->
                        val tensor = stage("output") { it.get(index) as OnnxTensor }
                        if (sample == 0) shapes[name] = tensor.info
                        report(sample, index, output(name, tensor), tensors)
                    }
                }
            }
        }
        return shapes
    }

    private fun feed(runtime: OrtEnvironment, tensors: List<EdgeTensor>): Feed {
        val inputs = tensors.filter { it.role == "input" }
        return Feed(inputs.associate { it.name to stage("bundle") { tensor(runtime, it) } })
    }

    private fun tensor(runtime: OrtEnvironment, input: EdgeTensor): OnnxTensor {
        val type = JAVA_TYPES[input.dtype]
            ?: throw EdgeFailure("bundle", "the runtime's Java API makes no ${input.dtype} tensors")
        val bytes = readTensor(bundle, input)
        val data = direct(bytes.size).apply { put(bytes).rewind() }
        return OnnxTensor.createTensor(runtime, data, input.shape.toLongArray(), type)
    }

    private fun output(name: String, tensor: OnnxTensor): EdgeOutput {
        val dtype = DTYPES[tensor.info.onnxType]
            ?: throw EdgeFailure("output", "$name has the type ${tensor.info.onnxType}")
        val data = stage("output") { tensor.byteBuffer }
        val bytes = ByteArray(data.remaining()).also(data::get)
        return EdgeOutput(name, dtype, tensor.info.shape.toList(), bytes)
    }

    private fun report(sample: Int, index: Int, output: EdgeOutput, tensors: List<EdgeTensor>) {
        val file = "${sample.toString().padStart(3, '0')}.output.$index.bin"
        host.output?.let { stage("output") { File(it, file).writeBytes(output.bytes) } }
        val digest = MessageDigest.getInstance("SHA-256").digest(output.bytes)
        say(
            "output", "sample" to sample, "index" to index, "name" to output.name,
            "dtype" to output.dtype, "shape" to output.shape.toLongArray(),
            "file" to file.takeIf { host.output != null },
            "sha256" to digest.joinToString("") { (it.toInt() and 0xff or 0x100).toString(16).drop(1) },
        )
        inspect(tensors.find { it.role == "output" && it.name == output.name }, output)
    }

    // ------------------------------------------------------------------------- measuring
    private fun time(
        runtime: OrtEnvironment,
        session: OrtSession,
        shapes: Map<String, TensorInfo>,
        loadPeak: Long,
    ) {
        feed(runtime, cases.getValue(0)).use { feed ->
            pinned(runtime, shapes).use { pinned ->
                val free = session.outputNames - pinned.tensors.keys
                // Only this call lies between two readings of the clock.
                val once = { session.run(feed.tensors, free, pinned.tensors).close() }
                stage("run") { warmUp(once) }
                val timed = stage("run") { timedLoop(once) }
                finish(loadPeak, timed, options.profile?.let { session.endProfiling() })
            }
        }
    }

    /** Outputs that the runtime writes in place, so that no run allocates them. */
    private fun pinned(runtime: OrtEnvironment, shapes: Map<String, TensorInfo>): Feed {
        val fixed = shapes.filterValues { it.numElements > 0 && DTYPES[it.onnxType] in JAVA_TYPES }
        return Feed(
            fixed.mapValues { (_, info) ->
                val size = ITEM_BYTES.getValue(DTYPES.getValue(info.onnxType)) * info.numElements
                OnnxTensor.createTensor(runtime, direct(size.toInt()), info.shape, info.type)
            }
        )
    }

    private fun warmUp(once: () -> Unit) {
        val started = System.nanoTime()
        val times = LongList()
        while (true) {
            val spent = System.nanoTime() - started
            val stable = times.settled()
            val enough = times.size >= options.warmup && spent >= options.warmupNs
            if ((enough && stable) || spent >= options.warmupLimitNs)
                return say("warmup", "runs" to times.size, "ns" to spent, "stable" to stable)
            val before = System.nanoTime()
            once()
            times.add(System.nanoTime() - before)
        }
    }

    private fun timedLoop(once: () -> Unit): Timed {
        val times = LongList()
        val cpu = host.cpuNs()
        val switches = EdgeSystem.involuntarySwitches()
        val started = System.nanoTime()
        var wall: Long
        do {
            val before = System.nanoTime()
            once()
            val after = System.nanoTime()
            times.add(after - before)
            wall = after - started
        } while (wall < options.maxNs && (times.size < options.iterations || wall < options.minNs))
        return Timed(
            times, wall, since(host.cpuNs(), cpu), since(EdgeSystem.involuntarySwitches(), switches)
        )
    }

    private fun since(now: Long, then: Long): Long =
        if (now < 0 || then < 0) -1 else maxOf(0, now - then)

    private fun finish(loadPeak: Long, timed: Timed, profile: String? = null) {
        timed.times.chunks(PER_LINE).forEach { say("sample", "ns" to it) }
        say("memory", "peak_bytes" to EdgeSystem.peakBytes(), "load_peak_bytes" to loadPeak)
        profile?.let { say("profile", "file" to it) }
        say(
            "end", "runs" to timed.times.size, "wall_ns" to timed.wallNs, "cpu_ns" to timed.cpuNs,
            "involuntary_switches" to timed.switches,
        )
    }

    private fun direct(size: Int): ByteBuffer =
        ByteBuffer.allocateDirect(size).order(ByteOrder.nativeOrder())

    /** Tensors by name that are closed together. */
    private class Feed(val tensors: Map<String, OnnxTensor>) : AutoCloseable {
        override fun close() = tensors.values.forEach(OnnxTensor::close)
    }

    private class Timed(
        val times: LongList = LongList(),
        val wallNs: Long = 0,
        val cpuNs: Long = 0,
        val switches: Long = 0,
    )

    private companion object {
        const val CPU = "CPUExecutionProvider"
        const val XNNPACK = "XnnpackExecutionProvider"
        const val PER_LINE = 100
        const val MAX_MESSAGE = 2000 // a line of the log holds about 4,000 bytes

        val OPTIMIZATION =
            mapOf(
                "disabled" to OrtSession.SessionOptions.OptLevel.NO_OPT,
                "basic" to OrtSession.SessionOptions.OptLevel.BASIC_OPT,
                "extended" to OrtSession.SessionOptions.OptLevel.EXTENDED_OPT,
                "all" to OrtSession.SessionOptions.OptLevel.ALL_OPT,
            )

        // What the Java API can make; it reads more.
        val JAVA_TYPES =
            mapOf(
                "float32" to OnnxJavaType.FLOAT, "float64" to OnnxJavaType.DOUBLE,
                "float16" to OnnxJavaType.FLOAT16, "bool" to OnnxJavaType.BOOL,
                "int8" to OnnxJavaType.INT8, "uint8" to OnnxJavaType.UINT8,
                "int16" to OnnxJavaType.INT16, "int32" to OnnxJavaType.INT32,
                "int64" to OnnxJavaType.INT64,
            )

        val DTYPES: Map<TensorInfo.OnnxTensorType, String> =
            TensorInfo.OnnxTensorType.values().mapNotNull { type ->
                val name = type.name.removePrefix("ONNX_TENSOR_ELEMENT_DATA_TYPE_").lowercase()
                val dtype = mapOf("float" to "float32", "double" to "float64")[name] ?: name
                if (dtype in ITEM_BYTES) type to dtype else null
            }.toMap()

        /** Runs `action`; whatever goes wrong in it becomes a failure of this stage. */
        inline fun <T> stage(stage: String, action: () -> T): T =
            try {
                action()
            } catch (failure: EdgeFailure) {
                throw failure
            } catch (error: OrtException) {
                throw EdgeFailure(stage, error.message.orEmpty(), error)
            } catch (error: IOException) {
                throw EdgeFailure(stage, error.toString(), error)
            } catch (error: RuntimeException) {
                throw EdgeFailure(stage, error.toString(), error)
            } catch (error: LinkageError) { // the runtime's library is not there for this ABI
                throw EdgeFailure(stage, error.toString(), error)
            } catch (error: OutOfMemoryError) {
                throw EdgeFailure(stage, error.toString(), error)
            }
    }
}

/** Nanoseconds of many runs, without boxing. */
class LongList {
    private var values = LongArray(1024)
    var size = 0
        private set

    fun add(value: Long) {
        if (size == values.size) values = values.copyOf(size * 2)
        values[size++] = value
    }

    fun chunks(length: Int): List<LongArray> =
        (0 until size step length).map { values.copyOfRange(it, minOf(it + length, size)) }

    /** True when the medians of the last two whole windows of runs agree within 3 %. */
    fun settled(): Boolean {
        val end = size - size % WINDOW
        if (end < 2 * WINDOW) return false
        val before = median(end - 2 * WINDOW)
        return abs(median(end - WINDOW) - before) <= SETTLED * before
    }

    private fun median(from: Int): Double {
        val sorted = values.copyOfRange(from, from + WINDOW).apply { sort() }
        return (sorted[WINDOW / 2 - 1] + sorted[WINDOW / 2]) / 2.0
    }

    private companion object {
        const val WINDOW = 10
        const val SETTLED = 0.03
    }
}

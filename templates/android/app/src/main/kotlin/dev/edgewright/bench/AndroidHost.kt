package dev.edgewright.bench

import android.content.Context
import android.content.res.AssetManager
import android.os.Process
import android.util.Log
import java.io.File
import java.io.FileNotFoundException
import java.io.InputStream
import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.channels.FileChannel

/** The bundle inside the app: assets/edge/, put there by the Gradle build. */
class AssetBundle(private val assets: AssetManager) : EdgeBundle {
    override val artifact: String = EdgeModel.ARTIFACT

    /** Mapped from the APK; `noCompress` in build.gradle.kts keeps the model plain in there. */
    override fun model(): ByteBuffer =
        try {
            assets.openFd("edge/$artifact").use { place ->
                place.createInputStream().channel.use { channel ->
                    val mode = FileChannel.MapMode.READ_ONLY
                    channel.map(mode, place.startOffset, place.declaredLength)
                }
            }
        } catch (_: FileNotFoundException) { // compressed after all
            direct(assets.open("edge/$artifact").use(InputStream::readBytes))
        }

    override fun sample(name: String): InputStream = assets.open("edge/samples/$name")

    private fun direct(bytes: ByteArray): ByteBuffer =
        ByteBuffer.allocateDirect(bytes.size).order(ByteOrder.nativeOrder()).apply {
            put(bytes)
            rewind()
        }
}

/**
 * Sends the JSON lines to the log (tag EDGE) and to the file `record` in the app's external
 * files folder. The file is complete; the log has no room for lines beyond about 4,000 bytes.
 */
class AndroidHost(
    context: Context,
    record: String = "edge.jsonl",
    private val seen: (String) -> Unit = {},
) : EdgeHost, AutoCloseable {
    override val os: String = "android"
    override val output: File = context.getExternalFilesDir(null) ?: context.filesDir
    private val record = File(output, record)
    private val writer = this.record.bufferedWriter()

    /** The kernel counts in milliseconds here. */
    override fun cpuNs(): Long = Process.getElapsedCpuTime() * 1_000_000

    override fun emit(line: String) {
        writer.write(line)
        writer.newLine()
        writer.flush()
        if (line.toByteArray().size <= LOG_BYTES) Log.i(TAG, line) else Log.w(TAG_LONG, "see $record")
        seen(line)
    }

    override fun close() = writer.close()

    private companion object {
        const val TAG = "EDGE"
        const val TAG_LONG = "EDGE-long"
        const val LOG_BYTES = 4000
    }
}

package dev.edgewright.bench

import java.io.File
import java.io.IOException

/** What the kernel says of this process. Every answer is -1 where it says nothing. */
object EdgeSystem {
    /** Peak resident memory since the start or the last reset, in bytes. */
    fun peakBytes(): Long = statusKilobytes("VmHWM")?.let { it * 1024 } ?: -1

    /** Starts the peak anew; where the kernel does not allow it the peak just goes on. */
    fun resetPeak() {
        try {
            File("/proc/self/clear_refs").writeText("5")
        } catch (_: IOException) {
            return
        }
    }

    /** How often the scheduler took a core from one of our threads. */
    fun involuntarySwitches(): Long {
        val threads = File("/proc/self/task").listFiles() ?: return -1
        val counts = threads.mapNotNull { number(File(it, "status"), "nonvoluntary_ctxt_switches") }
        return if (counts.isEmpty()) -1 else counts.sum()
    }

    private fun statusKilobytes(key: String): Long? = number(File("/proc/self/status"), key)

    private fun number(file: File, key: String): Long? =
        try {
            file.readLines().firstOrNull { it.startsWith("$key:") }
                ?.filter(Char::isDigit)?.toLongOrNull()
        } catch (_: IOException) {
            null // a thread that ended in between
        }
}

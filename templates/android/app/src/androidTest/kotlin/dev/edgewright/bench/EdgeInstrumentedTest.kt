package dev.edgewright.bench

import androidx.test.ext.junit.runners.AndroidJUnit4
import androidx.test.platform.app.InstrumentationRegistry
import org.junit.Assert.assertEquals
import org.junit.Assert.assertTrue
import org.junit.Test
import org.junit.runner.RunWith

/** Runs on a device or an emulator; the JSON lines are in the log under the tag EDGE. */
@RunWith(AndroidJUnit4::class)
class EdgeInstrumentedTest {
    private val context = InstrumentationRegistry.getInstrumentation().targetContext
    private val bundle = AssetBundle(context.assets)
    private val divergences = mutableListOf<String>()
    private var compared = 0

    @Test
    fun goldenSamplesAreWithinTolerance() {
        val golden = readIndex(bundle).count { it.role == "output" }
        run(EdgeOptions(checkOnly = true), "edge-check.jsonl")
        assertEquals("outputs compared", golden, compared)
        assertEquals("outputs outside the tolerance", listOf<String>(), divergences)
    }

    /** Options come from `-Pandroid.testInstrumentationRunnerArguments.iterations=200` and so on. */
    @Test
    fun measures() {
        val options = EdgeOptions.from(InstrumentationRegistry.getArguments()::getString)
        val lines = run(options, "edge.jsonl")
        assertTrue("the last line is an end event", lines.last().startsWith("{\"event\":\"end\""))
    }

    private fun run(options: EdgeOptions, record: String): List<String> {
        val lines = mutableListOf<String>()
        val host = AndroidHost(context, record) { lines.add(it) }
        val good = host.use { EdgeRunner(bundle, it, options, ::compare).run() }
        assertTrue("the runner said ${lines.last()}", good)
        return lines
    }

    private fun compare(golden: EdgeTensor?, output: EdgeOutput) {
        if (golden == null) return
        compared += 1
        val reason = divergence(golden, readTensor(bundle, golden), output, EdgeModel.TOLERANCE)
        if (reason != null) divergences.add("sample ${golden.sample} ${golden.name}: $reason")
    }
}

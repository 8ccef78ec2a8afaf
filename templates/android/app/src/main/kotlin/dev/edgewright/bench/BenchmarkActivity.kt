package dev.edgewright.bench

import android.app.Activity
import android.graphics.Typeface
import android.os.Bundle
import android.view.WindowManager
import android.widget.Button
import android.widget.LinearLayout
import android.widget.ScrollView
import android.widget.TextView
import kotlin.concurrent.thread

/**
 * One button and the runner's lines. Started with `--ez run true` it measures at once; string
 * extras named as the runner's options (`--es iterations 200`) are its options.
 */
class BenchmarkActivity : Activity() {
    private lateinit var lines: TextView
    private lateinit var button: Button

    override fun onCreate(state: Bundle?) {
        super.onCreate(state)
        title = "${EdgeModel.NAME} ${EdgeModel.VERSION}"
        // A dark screen lowers the clock of the cores.
        window.addFlags(WindowManager.LayoutParams.FLAG_KEEP_SCREEN_ON)
        lines = TextView(this).apply { typeface = Typeface.MONOSPACE; setTextIsSelectable(true) }
        button = Button(this).apply { text = "Measure"; setOnClickListener { measure() } }
        val column = LinearLayout(this).apply { orientation = LinearLayout.VERTICAL }
        column.addView(button)
        column.addView(ScrollView(this).apply { addView(lines) })
        column.fitsSystemWindows = true
        setContentView(column)
        if (state == null && intent.getBooleanExtra("run", false)) measure()
    }

    private fun measure() {
        button.isEnabled = false
        lines.text = ""
        thread(name = "edge-runner") {
            val show = { line: String -> runOnUiThread { lines.append(line + "\n") } }
            AndroidHost(applicationContext, seen = show).use { host ->
                try {
                    val options = EdgeOptions.from(intent::getStringExtra)
                    EdgeRunner(AssetBundle(assets), host, options).run()
                } catch (failure: EdgeFailure) {
                    val members = arrayOf("stage" to failure.stage, "message" to failure.message)
                    host.emit(jsonLine("event" to "error", *members))
                }
            }
            runOnUiThread { button.isEnabled = true }
        }
    }
}

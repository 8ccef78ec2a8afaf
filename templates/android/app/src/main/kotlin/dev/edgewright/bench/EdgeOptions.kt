package dev.edgewright.bench

/** A failure with the stage of the runner protocol in which it happened. */
class EdgeFailure(val stage: String, message: String, cause: Throwable? = null) :
    Exception(message, cause)

/** How the runner measures. Counts are minima; times are in nanoseconds. */
data class EdgeOptions(
    val warmup: Int = 3,
    val warmupNs: Long = 500_000_000,
    val warmupLimitNs: Long = 10_000_000_000,
    val iterations: Int = 100,
    val minNs: Long = 5_000_000_000,
    val maxNs: Long = 60_000_000_000,
    val threads: Int = 1,
    val provider: String = "CPUExecutionProvider",
    val optimization: String = "disabled",
    val profile: String? = null,
    val checkOnly: Boolean = false,
) {
    companion object {
        val NAMES =
            listOf(
                "warmup", "warmup-ns", "warmup-limit-ns", "iterations", "min-ns", "max-ns",
                "threads", "provider", "optimization", "profile", "check-only",
            )

        /** Options by the names of the runner protocol; `given` answers null for "not given". */
        fun from(given: (String) -> String?): EdgeOptions {
            val plain = EdgeOptions()
            val number = { name: String, least: Long, default: Long ->
                number(name, given(name), least) ?: default
            }
            return EdgeOptions(
                warmup = number("warmup", 0, plain.warmup.toLong()).toInt(),
                warmupNs = number("warmup-ns", 0, plain.warmupNs),
                warmupLimitNs = number("warmup-limit-ns", 0, plain.warmupLimitNs),
                iterations = number("iterations", 1, plain.iterations.toLong()).toInt(),
                minNs = number("min-ns", 0, plain.minNs),
                maxNs = number("max-ns", 0, plain.maxNs),
                threads = number("threads", 1, plain.threads.toLong()).toInt(),
                provider = given("provider") ?: plain.provider,
                optimization = given("optimization") ?: plain.optimization,
                profile = given("profile"),
                checkOnly = given("check-only") == "true",
            )
        }

        private fun number(name: String, text: String?, least: Long): Long? {
            if (text == null) return null
            val most = if (name.endsWith("ns")) Long.MAX_VALUE / 4 else Int.MAX_VALUE.toLong()
            return text.toLongOrNull()?.takeIf { it in least..most }
                ?: throw EdgeFailure("arguments", "$name is '$text', not a number from $least up")
        }
    }
}

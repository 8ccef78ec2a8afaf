import Darwin

/// What the system says of this process.
enum EdgeSystem {
    #if os(iOS)
    static let os = "ios"
    #else
    static let os = "macos"
    #endif

    #if arch(arm64)
    static let arch = "arm64"
    #else
    static let arch = "x86_64"
    #endif

    /// Nanoseconds of a clock that only goes forward.
    @inline(__always)
    static func now() -> Int { Int(clock_gettime_nsec_np(CLOCK_UPTIME_RAW)) }

    /// Peak resident memory since the start in bytes; a process cannot reset it.
    static func peakBytes() -> Int { usage().ru_maxrss }

    /// Processor time of this process in nanoseconds; the kernel counts in microseconds.
    static func cpuNs() -> Int {
        let used = usage()
        let seconds = used.ru_utime.tv_sec + used.ru_stime.tv_sec
        let micros = Int(used.ru_utime.tv_usec) + Int(used.ru_stime.tv_usec)
        return seconds * 1_000_000_000 + micros * 1000
    }

    /// How often the scheduler took a core from one of our threads.
    static func involuntarySwitches() -> Int { usage().ru_nivcsw }

    private static func usage() -> rusage {
        var used = rusage()
        getrusage(RUSAGE_SELF, &used)
        return used
    }
}

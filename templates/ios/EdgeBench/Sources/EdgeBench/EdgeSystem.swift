import Foundation

/// What the system says of this process.
enum EdgeSystem {
    #if os(iOS)
    static let os = "ios"
    #elseif os(macOS)
    static let os = "macos"
    #else
    static let os = "linux"
    #endif

    #if arch(arm64)
    static let arch = "arm64"
    #else
    static let arch = "x86_64"
    #endif

    /// The system's release, such as 18.1.0.
    static var release: String {
        let version = ProcessInfo.processInfo.operatingSystemVersion
        return "\(version.majorVersion).\(version.minorVersion).\(version.patchVersion)"
    }

    /// The end of a name in the cache: what is compiled is for a release and for compute units.
    static func kept(_ units: String) -> String { "\(release)-\(units)" }

    /// What slows this device down, for the `end` event: nothing where the system does not say.
    static func state() -> [(String, JSON)] {
        #if canImport(Darwin)
        let info = ProcessInfo.processInfo
        return [
            ("thermal_state", .int(info.thermalState.rawValue)),
            ("low_power", .bool(info.isLowPowerModeEnabled)),
        ]
        #else
        return []
        #endif
    }

    /// Nanoseconds of a clock that only goes forward.
    @inline(__always)
    static func now() -> Int {
        #if canImport(Darwin)
        return Int(clock_gettime_nsec_np(CLOCK_UPTIME_RAW))
        #else
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return time.tv_sec * 1_000_000_000 + time.tv_nsec
        #endif
    }

    /// Peak memory since the start in bytes; a process cannot reset it. Apple's systems count the
    /// footprint, by which iOS ends apps: without files that are only mapped, with what is swapped.
    static func peakBytes() -> Int {
        #if canImport(Darwin)
        return footprint() ?? usage().ru_maxrss
        #else
        return usage().ru_maxrss * 1024
        #endif
    }

    /// Processor time of this process in nanoseconds; the kernel counts in microseconds.
    static func cpuNs() -> Int {
        let used = usage()
        let seconds = used.ru_utime.tv_sec + used.ru_stime.tv_sec
        let micros = Int(used.ru_utime.tv_usec) + Int(used.ru_stime.tv_usec)
        return seconds * 1_000_000_000 + micros * 1000
    }

    /// How often the scheduler took a core from one of our threads.
    static func involuntarySwitches() -> Int { usage().ru_nivcsw }

    #if canImport(Darwin)
    private static func footprint() -> Int? {
        var info = task_vm_info_data_t()
        var count = mach_msg_type_number_t(
            MemoryLayout<task_vm_info_data_t>.size / MemoryLayout<integer_t>.size)
        let status = withUnsafeMutablePointer(to: &info) { place in
            place.withMemoryRebound(to: integer_t.self, capacity: Int(count)) {
                task_info(mach_task_self_, task_flavor_t(TASK_VM_INFO), $0, &count)
            }
        }
        let peak = Int(info.ledger_phys_footprint_peak)
        return status == KERN_SUCCESS && peak > 0 ? peak : nil
    }
    #endif

    private static func usage() -> rusage {
        var used = rusage()
        #if canImport(Darwin)
        getrusage(RUSAGE_SELF, &used)
        #else
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &used)
        #endif
        return used
    }
}

import Foundation

/// The runner: loads the bundle's model, computes the golden samples, measures, and says all of it
/// as JSON lines (protocol 1).
///
/// `inspect` sees each output together with its golden tensor. Nothing of UIKit is in here: the
/// same code runs in an app, in a test and on a Mac.
public final class EdgeRunner {
    public typealias Inspect = (EdgeTensor?, EdgeOutput) throws -> Void

    private let bundle: EdgeBundle
    private let options: EdgeOptions
    private let emit: (String) -> Void
    private let inspect: Inspect
    private static let perLine = 100

    public init(
        bundle: EdgeBundle, options: EdgeOptions, inspect: @escaping Inspect = { _, _ in },
        emit: @escaping (String) -> Void
    ) {
        self.bundle = bundle
        self.options = options
        self.inspect = inspect
        self.emit = emit
    }

    /// True when all went well; after a failure its event was the last line.
    public func run() -> Bool {
        do {
            try measure()
            return true
        } catch {
            let failure = error as? EdgeFailure ?? EdgeFailure("run", error.localizedDescription)
            emit(Self.line(for: failure))
            return false
        }
    }

    /// The event that says a failure.
    public static func line(for failure: EdgeFailure) -> String {
        jsonLine([
            "event": .string("error"), "stage": .string(failure.stage),
            "message": .string(failure.message),
        ])
    }

    private func measure() throws {
        let cases = Dictionary(grouping: try bundle.readIndex(), by: \.sample)
        guard let usual = cases[0] else {
            throw EdgeFailure("bundle", "samples.tsv has no sample 0")
        }
        let engine = try EdgeProvider(options.provider).engine(options)
        sayEnvironment(engine)
        let started = EdgeSystem.now()
        let session = try engine.open(bundle)
        sayLoad(EdgeSystem.now() - started, session.cached)
        let loadPeak = EdgeSystem.peakBytes()
        var first: [EdgeOutput] = []
        for sample in cases.keys.sorted() {
            let outputs = try goldenRun(session, sample, cases[sample] ?? [])
            if sample == 0 { first = outputs }
        }
        if options.checkOnly { return finish(Timed(), loadPeak, profile: try profile(of: session)) }
        try feed(session, usual)
        try session.pin(first)
        try warmUp(session)
        let timed = try timedLoop(session)
        finish(timed, loadPeak, profile: try profile(of: session))
    }

    private func profile(of session: any EdgeSession) throws -> String? {
        try options.profile.map { _ in try session.endProfiling() }
    }

    private func sayEnvironment(_ engine: any EdgeEngine) {
        emit(
            jsonLine([
                "event": .string("env"), "protocol": .int(1), "runner": .string("swift"),
                "runtime": .string(engine.runtime), "version": .string(engine.version),
                "arch": .string(EdgeSystem.arch), "os": .string(EdgeSystem.os),
                "threads": .int(options.threads), "provider": .string(options.provider),
                "optimization": .string(engine.optimization),
            ]))
    }

    private func sayLoad(_ ns: Int, _ cached: Bool?) {
        guard let cached else {
            return emit(jsonLine(["event": .string("load"), "ns": .int(ns)]))
        }
        emit(jsonLine(["event": .string("load"), "ns": .int(ns), "cached": .bool(cached)]))
    }

    // MARK: golden samples

    private func goldenRun(
        _ session: any EdgeSession, _ sample: Int, _ tensors: [EdgeTensor]
    ) throws -> [EdgeOutput] {
        try feed(session, tensors)
        session.release()
        let started = EdgeSystem.now()
        try session.run()
        let spent = EdgeSystem.now() - started
        if sample == 0 { emit(jsonLine(["event": .string("first"), "ns": .int(spent)])) }
        let outputs = try session.outputs()
        for (index, output) in outputs.enumerated() {
            try report(sample, index, output)
            try inspect(tensors.first { $0.role == "output" && $0.name == output.name }, output)
        }
        return outputs
    }

    private func feed(_ session: any EdgeSession, _ tensors: [EdgeTensor]) throws {
        let inputs = tensors.filter { $0.role == "input" }
        try session.feed(inputs, try inputs.map(bundle.read))
    }

    private func report(_ sample: Int, _ index: Int, _ output: EdgeOutput) throws {
        var file: String?
        if let folder = options.output {
            let digits = String(sample)
            let padded = String(repeating: "0", count: max(0, 3 - digits.count)) + digits
            let name = "\(padded).output.\(index).bin"
            do {
                try output.bytes.write(to: folder.appendingPathComponent(name))
            } catch {
                throw EdgeFailure("output", "cannot write \(name): \(error.localizedDescription)")
            }
            file = name
        }
        emit(
            jsonLine([
                "event": .string("output"), "sample": .int(sample), "index": .int(index),
                "name": .string(output.name), "dtype": .string(output.dtype),
                "shape": .ints(output.shape), "file": file.map(JSON.string) ?? .null,
                "sha256": .string(sha256(output.bytes)),
            ]))
    }

    // MARK: measuring

    private func warmUp(_ session: any EdgeSession) throws {
        let started = EdgeSystem.now()
        var times: [Int] = []
        while true {
            let spent = EdgeSystem.now() - started
            let stable = Self.settled(times)
            let enough = times.count >= options.warmup && spent >= options.warmupNs
            if (enough && stable) || spent >= options.warmupLimitNs {
                emit(
                    jsonLine([
                        "event": .string("warmup"), "runs": .int(times.count), "ns": .int(spent),
                        "stable": .bool(stable),
                    ]))
                return
            }
            let before = EdgeSystem.now()
            try session.run()
            times.append(EdgeSystem.now() - before)
            session.release()
        }
    }

    private func timedLoop(_ session: any EdgeSession) throws -> Timed {
        var timed = Timed()
        timed.times.reserveCapacity(1 << 16)
        let cpu = EdgeSystem.cpuNs()
        let switches = EdgeSystem.involuntarySwitches()
        let started = EdgeSystem.now()
        repeat {
            let before = EdgeSystem.now()
            try session.run()
            let after = EdgeSystem.now()
            timed.times.append(after - before)
            timed.wallNs = after - started
            session.release()
        } while timed.wallNs < options.maxNs
            && (timed.times.count < options.iterations || timed.wallNs < options.minNs)
        timed.cpuNs = EdgeSystem.cpuNs() - cpu
        timed.switches = EdgeSystem.involuntarySwitches() - switches
        return timed
    }

    private func finish(_ timed: Timed, _ loadPeak: Int, profile: String?) {
        for from in stride(from: 0, to: timed.times.count, by: Self.perLine) {
            let part = timed.times[from..<min(from + Self.perLine, timed.times.count)]
            emit(jsonLine(["event": .string("sample"), "ns": .ints(Array(part))]))
        }
        emit(
            jsonLine([
                "event": .string("memory"), "peak_bytes": .int(EdgeSystem.peakBytes()),
                "load_peak_bytes": .int(loadPeak),
            ]))
        if let profile {
            emit(jsonLine(["event": .string("profile"), "file": .string(profile)]))
        }
        emit(
            jsonLine(
                [
                    "event": .string("end"), "runs": .int(timed.times.count),
                    "wall_ns": .int(timed.wallNs), "cpu_ns": .int(timed.cpuNs),
                    "involuntary_switches": .int(timed.switches),
                ], EdgeSystem.state()))
    }

    private struct Timed {
        var times: [Int] = []
        var wallNs = 0
        var cpuNs = 0
        var switches = 0
    }

    /// True when the medians of the last two whole windows of ten runs agree within 3 %.
    static func settled(_ times: [Int]) -> Bool {
        let window = 10
        let end = times.count - times.count % window
        guard end >= 2 * window else { return false }
        let before = median(times[(end - 2 * window)..<(end - window)])
        return abs(median(times[(end - window)..<end]) - before) <= 0.03 * before
    }

    private static func median(_ times: ArraySlice<Int>) -> Double {
        let sorted = times.sorted()
        return Double(sorted[sorted.count / 2 - 1] + sorted[sorted.count / 2]) / 2
    }
}

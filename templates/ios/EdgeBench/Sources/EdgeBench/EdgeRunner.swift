import CryptoKit
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
    /// An .ort file was optimized when it was made; an .onnx file gets what is asked for.
    private var optimization: String {
        EdgeModel.artifact.hasSuffix(".ort") ? "disabled" : options.optimization
    }
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
        guard cases[0] != nil else { throw EdgeFailure("bundle", "samples.tsv has no sample 0") }
        let runtime = try EdgeRuntime()
        sayEnvironment(runtime)
        let started = EdgeSystem.now()
        let session = try runtime.open(bundle.model, options, optimization: optimization)
        emit(jsonLine(["event": .string("load"), "ns": .int(EdgeSystem.now() - started)]))
        let loadPeak = EdgeSystem.peakBytes()
        var first: [EdgeOutput] = []
        for sample in cases.keys.sorted() {
            let outputs = try goldenRun(runtime, session, sample, cases[sample] ?? [])
            if sample == 0 { first = outputs }
        }
        if options.checkOnly { return finish(Timed(), loadPeak, profile: nil) }
        let inputs = try feed(runtime, cases[0] ?? [])
        let outputs = try pinned(runtime, first)
        try warmUp(session, inputs, outputs)
        let timed = try timedLoop(session, inputs, outputs)
        finish(timed, loadPeak, profile: try options.profile.map { _ in try session.endProfiling() })
    }

    private func sayEnvironment(_ runtime: EdgeRuntime) {
        emit(
            jsonLine([
                "event": .string("env"), "protocol": .int(1), "runner": .string("swift"),
                "runtime": .string("onnxruntime"), "version": .string(runtime.version),
                "arch": .string(EdgeSystem.arch), "os": .string(EdgeSystem.os),
                "threads": .int(options.threads), "provider": .string(options.provider),
                "optimization": .string(optimization),
            ]))
    }

    // MARK: golden samples

    private func goldenRun(
        _ runtime: EdgeRuntime, _ session: EdgeSession, _ sample: Int, _ tensors: [EdgeTensor]
    ) throws -> [EdgeOutput] {
        let inputs = try feed(runtime, tensors)
        let values = EdgeValues(runtime, names: session.outputNames)
        let started = EdgeSystem.now()
        try session.run(inputs, values)
        let spent = EdgeSystem.now() - started
        if sample == 0 { emit(jsonLine(["event": .string("first"), "ns": .int(spent)])) }
        return try session.outputNames.enumerated().map { index, name in
            let output = try values.output(index, name: name)
            try report(sample, index, output)
            try inspect(tensors.first { $0.role == "output" && $0.name == name }, output)
            return output
        }
    }

    private func feed(_ runtime: EdgeRuntime, _ tensors: [EdgeTensor]) throws -> EdgeValues {
        let inputs = tensors.filter { $0.role == "input" }
        let values = EdgeValues(runtime, names: inputs.map(\.name))
        for (index, input) in inputs.enumerated() {
            let data = try bundle.read(input)
            try values.bind(
                index, dtype: input.dtype, shape: input.shape, data, byteCount: data.count)
        }
        return values
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
        let digest = SHA256.hash(data: output.bytes).map { byte in
            String(UInt16(byte) | 0x100, radix: 16).dropFirst()
        }
        emit(
            jsonLine([
                "event": .string("output"), "sample": .int(sample), "index": .int(index),
                "name": .string(output.name), "dtype": .string(output.dtype),
                "shape": .ints(output.shape), "file": file.map(JSON.string) ?? .null,
                "sha256": .string(digest.joined()),
            ]))
    }

    // MARK: measuring

    /// Outputs that the runtime writes in place, so that no run allocates them.
    private func pinned(_ runtime: EdgeRuntime, _ outputs: [EdgeOutput]) throws -> EdgeValues {
        let values = EdgeValues(runtime, names: outputs.map(\.name))
        for (index, output) in outputs.enumerated() where !output.bytes.isEmpty {
            try values.bind(
                index, dtype: output.dtype, shape: output.shape, nil,
                byteCount: output.bytes.count)
        }
        return values
    }

    private func warmUp(
        _ session: EdgeSession, _ inputs: EdgeValues, _ outputs: EdgeValues
    ) throws {
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
            try session.run(inputs, outputs)
            times.append(EdgeSystem.now() - before)
            outputs.releaseMade()
        }
    }

    private func timedLoop(
        _ session: EdgeSession, _ inputs: EdgeValues, _ outputs: EdgeValues
    ) throws -> Timed {
        var timed = Timed()
        timed.times.reserveCapacity(1 << 16)
        let cpu = EdgeSystem.cpuNs()
        let switches = EdgeSystem.involuntarySwitches()
        let started = EdgeSystem.now()
        repeat {
            let before = EdgeSystem.now()
            try session.run(inputs, outputs)
            let after = EdgeSystem.now()
            timed.times.append(after - before)
            timed.wallNs = after - started
            outputs.releaseMade()
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
            jsonLine([
                "event": .string("end"), "runs": .int(timed.times.count),
                "wall_ns": .int(timed.wallNs), "cpu_ns": .int(timed.cpuNs),
                "involuntary_switches": .int(timed.switches),
            ]))
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

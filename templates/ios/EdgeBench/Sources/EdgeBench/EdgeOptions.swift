import Foundation

/// A failure with the stage of the runner protocol in which it happened.
public struct EdgeFailure: Error, CustomStringConvertible {
    public let stage: String
    public let message: String

    public init(_ stage: String, _ message: String) {
        self.stage = stage
        self.message = message
    }

    public var description: String { "\(stage): \(message)" }
}

/// How the runner measures. Counts are minima; times are in nanoseconds.
public struct EdgeOptions {
    public var warmup = 3
    public var warmupNs = 500_000_000
    public var warmupLimitNs = 10_000_000_000
    public var iterations = 100
    public var minNs = 5_000_000_000
    public var maxNs = 60_000_000_000
    public var threads = 1
    public var provider = "CPUExecutionProvider"
    public var optimization = "disabled"
    public var profile: String?
    public var checkOnly = false
    public var bundle: URL?
    public var output: URL?
    /// An existing folder where what is compiled on the device is kept.
    public var cache: URL?
    /// What the app calls its record, so that nobody takes the one of an earlier run for it.
    public var record = "edge.jsonl"

    public init() {}

    /// Options by the names of the runner protocol: `--iterations 200 --check-only`.
    ///
    /// Words that do not begin with `--` are no options of ours: Xcode adds some of its own.
    public init(arguments: [String]) throws {
        var rest = arguments[...]
        while let word = rest.popFirst() {
            guard word.hasPrefix("--"), word != "--run" else { continue }
            if word == "--check-only" {
                checkOnly = true
                continue
            }
            guard let value = rest.popFirst() else {
                throw EdgeFailure("arguments", "\(word) lacks its value")
            }
            try set(String(word.dropFirst(2)), value)
        }
    }

    private mutating func set(_ name: String, _ value: String) throws {
        switch name {
        case "warmup": warmup = try number(name, value, least: 0)
        case "warmup-ns": warmupNs = try number(name, value, least: 0)
        case "warmup-limit-ns": warmupLimitNs = try number(name, value, least: 0)
        case "iterations": iterations = try number(name, value, least: 1)
        case "min-ns": minNs = try number(name, value, least: 0)
        case "max-ns": maxNs = try number(name, value, least: 0)
        case "threads": threads = try number(name, value, least: 1)
        case "provider": provider = value
        case "optimization": optimization = value
        case "profile": profile = value
        case "bundle": bundle = URL(fileURLWithPath: value, isDirectory: true)
        case "output": output = URL(fileURLWithPath: value, isDirectory: true)
        case "record": record = URL(fileURLWithPath: value).lastPathComponent
        case "cache": cache = URL(fileURLWithPath: value, isDirectory: true)
        default: throw EdgeFailure("arguments", "there is no option --\(name)")
        }
    }

    /// Where the profile goes: a path as it is, a mere name into the output folder.
    var profilePrefix: String? {
        guard let profile, let output, !profile.contains("/") else { return profile }
        return output.appendingPathComponent(profile).path
    }

    private func number(_ name: String, _ text: String, least: Int) throws -> Int {
        let most = name.hasSuffix("ns") ? Int.max / 4 : Int(Int32.max)
        guard let value = Int(text), (least...most).contains(value) else {
            throw EdgeFailure("arguments", "--\(name) is '\(text)', not a number from \(least) up")
        }
        return value
    }
}

import Foundation

/// What loads and runs a model: ONNX Runtime or Core ML, as `--provider` says.
protocol EdgeEngine {
    /// Name and release, for the `env` event.
    var runtime: String { get }
    var version: String { get }
    /// How far the graph is optimized when it is loaded.
    var optimization: String { get }

    func open(_ bundle: EdgeBundle) throws -> any EdgeSession
}

/// A loaded model. Inputs stay until others are fed; `run` is all that is timed.
protocol EdgeSession: AnyObject {
    /// Whether a compiled model was found in the cache folder; nil where nothing is kept.
    var cached: Bool? { get }

    func feed(_ inputs: [EdgeTensor], _ data: [Data]) throws
    /// One call of the engine and nothing else.
    func run() throws
    /// Copies of what the last run made, in the model's order.
    func outputs() throws -> [EdgeOutput]
    /// From now on outputs of these shapes are written in place, where the engine can do that.
    func pin(_ outputs: [EdgeOutput]) throws
    /// Lets go of what the last run made.
    func release()
    /// Ends profiling; the file that it wrote.
    func endProfiling() throws -> String
}

/// A provider's name in its parts: `CoreMLExecutionProvider:CPUOnly` has the units `CPUOnly`.
struct EdgeProvider {
    let name: String
    let units: String?

    init(_ text: String) {
        let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        name = String(parts[0])
        units = parts.count > 1 ? String(parts[1]) : nil
    }

    func engine(_ options: EdgeOptions) throws -> any EdgeEngine {
        guard name == "coreml" else { return try EdgeRuntime(self, options) }
        #if canImport(CoreML)
        return try EdgeCoreML(units ?? "ALL", options)
        #else
        throw EdgeFailure("runtime", "this system has no Core ML")
        #endif
    }
}

#if canImport(CoreML)
import CoreML
import Foundation

/// Core ML itself, with the bundle's package; its release is the system's.
final class EdgeCoreML: EdgeEngine {
    let runtime = "coreml"
    let version = EdgeSystem.release
    let optimization = "disabled"
    private let units: MLComputeUnits
    private let called: String
    private let cache: URL?

    init(_ units: String, _ options: EdgeOptions) throws {
        guard let found = try Self.known(units) else {
            throw EdgeFailure("arguments", "Core ML has no compute units '\(units)'")
        }
        if options.profile != nil {
            throw EdgeFailure("arguments", "Core ML writes no profile; use Instruments")
        }
        (self.units, called, cache) = (found, units, options.cache)
    }

    private static func known(_ units: String) throws -> MLComputeUnits? {
        switch units {
        case "ALL": return .all
        case "CPU_ONLY": return .cpuOnly
        case "CPU_AND_GPU": return .cpuAndGPU
        case "CPU_AND_NE":
            guard #available(iOS 16, macOS 13, *) else {
                throw EdgeFailure("runtime", "CPU_AND_NE needs iOS 16 or macOS 13")
            }
            return .cpuAndNeuralEngine
        default: return nil
        }
    }

    func open(_ bundle: EdgeBundle) throws -> any EdgeSession {
        guard let files = EdgeModel.coreml, let package = files.package else {
            throw EdgeFailure("bundle", "the bundle holds no Core ML package")
        }
        do {
            let source = bundle.root.appendingPathComponent(package)
            return try load(source, key: "\(files.packageKey)-\(EdgeSystem.kept(called))")
        } catch let error as EdgeFailure {
            throw error
        } catch {
            throw EdgeFailure("load", error.localizedDescription)
        }
    }

    /// What is compiled is kept for this release of the system and these units: what is made for
    /// their chips when it is first loaded is a part of what another load finds.
    private func load(_ package: URL, key: String) throws -> EdgeCoreMLSession {
        let configuration = MLModelConfiguration()
        configuration.computeUnits = units
        guard let cache else {
            let made = try MLModel.compileModel(at: package)
            let model = try MLModel(contentsOf: made, configuration: configuration)
            let found = try ports(of: model)
            return EdgeCoreMLSession(model, found, cached: nil, temporary: made)
        }
        let kept = cache.appendingPathComponent("\(key).mlmodelc")
        let there = FileManager.default.fileExists(atPath: kept.path)
        if !there { try keep(try MLModel.compileModel(at: package), as: kept) }
        let model = try MLModel(contentsOf: kept, configuration: configuration)
        return EdgeCoreMLSession(model, try ports(of: model), cached: there, temporary: nil)
    }

    /// Whole or not at all: a move from another volume is a copy, and a second process may be first.
    private func keep(_ made: URL, as kept: URL) throws {
        let files = FileManager.default
        let part = kept.appendingPathExtension(UUID().uuidString)
        defer { try? files.removeItem(at: part) }
        try files.moveItem(at: made, to: part)
        do {
            try files.moveItem(at: part, to: kept)
        } catch where files.fileExists(atPath: kept.path) {}
    }

    private func ports(of model: MLModel) throws -> EdgePorts {
        let own = model.modelDescription.metadata[.creatorDefinedKey] as? [String: String] ?? [:]
        return try EdgePorts(json: own[EdgePorts.key])
    }
}

/// A loaded package. Its outputs are Core ML's own: each run makes them.
final class EdgeCoreMLSession: EdgeSession {
    let cached: Bool?
    private let model: MLModel
    private let ports: EdgePorts
    private let temporary: URL?
    private var given: MLFeatureProvider?
    private var made: MLFeatureProvider?

    init(_ model: MLModel, _ ports: EdgePorts, cached: Bool?, temporary: URL?) {
        (self.model, self.ports, self.cached, self.temporary) = (model, ports, cached, temporary)
    }

    deinit {
        if let temporary { try? FileManager.default.removeItem(at: temporary) }
    }

    func feed(_ inputs: [EdgeTensor], _ data: [Data]) throws {
        var features: [String: MLFeatureValue] = [:]
        for port in ports.inputs {
            guard let at = inputs.firstIndex(where: { $0.name == port.onnx }) else {
                throw EdgeFailure("bundle", "the samples have no input \(port.onnx)")
            }
            features[port.name] = MLFeatureValue(multiArray: try array(port, inputs[at], data[at]))
        }
        given = try MLDictionaryFeatureProvider(dictionary: features)
    }

    private func array(_ port: EdgePort, _ tensor: EdgeTensor, _ data: Data) throws -> MLMultiArray {
        guard let type = Self.types[port.held] else {
            throw EdgeFailure("bundle", "\(port.onnx) is held as \(port.held)")
        }
        let bytes = try port.given(tensor, data)
        let array = try MLMultiArray(shape: port.shape.map(NSNumber.init(value:)), dataType: type)
        let size = port.shape.reduce(EdgeTensor.itemBytes[port.held] ?? 4, *)
        guard bytes.count == size else {
            throw EdgeFailure("bundle", "\(port.onnx) has another shape than the package")
        }
        // A new array lies in C order without gaps.
        bytes.copyBytes(to: UnsafeMutableRawBufferPointer(start: array.dataPointer, count: size))
        return array
    }

    /// A pool a run: what Core ML hands back would stay until the loop ends.
    func run() throws {
        guard let given else { throw EdgeFailure("run", "nothing was fed") }
        made = try autoreleasepool { try model.prediction(from: given) }
    }

    func outputs() throws -> [EdgeOutput] {
        try ports.outputs.map { port in
            guard let array = made?.featureValue(for: port.name)?.multiArrayValue else {
                throw EdgeFailure("output", "\(port.onnx) is missing")
            }
            guard let type = Self.types.first(where: { $0.value == array.dataType })?.key else {
                throw EdgeFailure("output", "\(port.onnx) has a type that is not known")
            }
            let shape = array.shape.map(\.intValue)
            let strides = array.strides.map(\.intValue)
            let last = zip(shape, strides).reduce(0) { $0 + max(0, $1.0 - 1) * $1.1 }
            let count = (last + 1) * (EdgeTensor.itemBytes[type] ?? 1)
            let memory = UnsafeRawBufferPointer(start: array.dataPointer, count: count)
            return try port.told(memory, type, shape, strides)
        }
    }

    func pin(_ outputs: [EdgeOutput]) throws {}

    func release() { made = nil }

    func endProfiling() throws -> String {
        throw EdgeFailure("run", "Core ML wrote no profile")
    }

    private static let types: [String: MLMultiArrayDataType] = {
        var found: [String: MLMultiArrayDataType] = [
            "float32": .float32, "float64": .double, "int32": .int32,
        ]
        if #available(iOS 16, macOS 13, *) { found["float16"] = .float16 }
        return found
    }()
}
#endif

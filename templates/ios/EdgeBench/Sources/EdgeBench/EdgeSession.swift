import Foundation

#if canImport(COnnxRuntime) // else a bridging header gives the same (see CocoaPods in README.md)
import COnnxRuntime
#endif

/// ONNX Runtime through its C API, which is the same in the framework of the Swift package, of the
/// pod and of a build of one's own, and binds inputs and outputs once for all runs.
final class EdgeRuntime: EdgeEngine {
    let api: OrtApi
    let runtime = "onnxruntime"
    let version: String
    private let environment: OpaquePointer
    private let provider: EdgeProvider
    private let options: EdgeOptions

    init(_ provider: EdgeProvider, _ options: EdgeOptions) throws {
        guard let base = OrtGetApiBase()?.pointee, let api = base.GetApi(UInt32(ORT_API_VERSION)) else {
            throw EdgeFailure("runtime", "the library is older than its header")
        }
        (self.provider, self.options) = (provider, options)
        // Read when the environment is made, before DisableTelemetryEvents can be called.
        setenv("ORT_DISABLE_TELEMETRY", "1", 1)
        self.api = api.pointee
        version = base.GetVersionString().map { String(cString: $0) } ?? ""
        environment = try Self.make(self.api, "runtime") {
            api.pointee.CreateEnv(ORT_LOGGING_LEVEL_ERROR, "edge", $0)
        }
        try Self.check(self.api, "runtime", self.api.DisableTelemetryEvents(environment))
    }

    deinit {
        api.ReleaseEnv(environment)
    }

    /// An .ort file was optimized when it was made; an .onnx file gets what is asked for.
    var optimization: String {
        EdgeModel.artifact.hasSuffix(".ort") ? "disabled" : options.optimization
    }

    func check(_ stage: String, _ status: OpaquePointer?) throws {
        try Self.check(api, stage, status)
    }

    /// What a function of the API hands back through its last argument.
    func make(
        _ stage: String, _ call: (UnsafeMutablePointer<OpaquePointer?>) -> OpaquePointer?
    ) throws -> OpaquePointer {
        try Self.make(api, stage, call)
    }

    func open(_ bundle: EdgeBundle) throws -> any EdgeSession {
        let settings = try make("load") { api.CreateSessionOptions($0) }
        defer { api.ReleaseSessionOptions(settings) }
        try set(settings)
        let (model, cached) = try attach(settings, bundle)
        let session = try make("load") { api.CreateSession(environment, model.path, settings, $0) }
        return try EdgeOrtSession(self, session, cached: cached)
    }

    private func set(_ settings: OpaquePointer) throws {
        let levels = [
            "disabled": ORT_DISABLE_ALL, "basic": ORT_ENABLE_BASIC,
            "extended": ORT_ENABLE_EXTENDED, "all": ORT_ENABLE_ALL,
        ]
        guard let level = levels[optimization] else {
            throw EdgeFailure("arguments", "no optimization level '\(optimization)'")
        }
        try check("load", api.SetSessionGraphOptimizationLevel(settings, level))
        try check("load", api.SetInterOpNumThreads(settings, 1))
        try check("load", api.SetIntraOpNumThreads(settings, Int32(options.threads)))
        if let place = options.profilePrefix {
            try check("load", api.EnableProfiling(settings, place))
        }
    }

    // MARK: providers

    /// Names the provider to the session: the model that is for it, and whether the folder of what
    /// it compiled is there already. Nodes that it does not take run on the CPU.
    private func attach(_ settings: OpaquePointer, _ bundle: EdgeBundle) throws -> (URL, Bool?) {
        if provider.name == "CPUExecutionProvider" { return (bundle.model, nil) }
        guard let coreml = EdgeModel.coreml, let artifact = coreml.artifact else {
            throw EdgeFailure("bundle", "the bundle holds nothing for \(options.provider)")
        }
        let model = bundle.root.appendingPathComponent(artifact)
        switch provider.name {
        case "XnnpackExecutionProvider":
            try useXnnpack(settings)
            return (model, nil)
        case "CoreMLExecutionProvider":
            return (model, try useCoreML(settings, coreml))
        default:
            throw EdgeFailure("runtime", "\(options.provider) is not in this app")
        }
    }

    /// True where the folder of what it compiled is there; nil where nothing is kept. The provider
    /// tells apart neither releases of the system nor compute units: each has a folder of its own.
    private func useCoreML(_ settings: OpaquePointer, _ coreml: EdgeCoreMLFiles) throws -> Bool? {
        var told = coreml.options
        if let units = provider.units { told["MLComputeUnits"] = units }
        guard let cache = options.cache else {
            try append(settings, "CoreML", told)
            return nil
        }
        let name = "onnxruntime-\(EdgeSystem.kept(told["MLComputeUnits"] ?? "ALL"))"
        let place = cache.appendingPathComponent(name, isDirectory: true)
        try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
        told["ModelCacheDirectory"] = place.path
        let kept = place.appendingPathComponent(coreml.key).path
        let there = FileManager.default.fileExists(atPath: kept)
        try append(settings, "CoreML", told)
        return there
    }

    /// XNNPACK has threads of its own; the session's would wait for them and take their cores.
    private func useXnnpack(_ settings: OpaquePointer) throws {
        try check("load", api.SetIntraOpNumThreads(settings, 1))
        let spin = "session.intra_op.allow_spinning"
        try check("load", api.AddSessionConfigEntry(settings, spin, "0"))
        try append(settings, "XNNPACK", ["intra_op_num_threads": String(options.threads)])
    }

    /// A runtime without the provider is an error of the stage `runtime`; any other one here is not.
    private func append(_ settings: OpaquePointer, _ name: String, _ told: [String: String]) throws {
        guard try providers().contains(provider.name) else {
            throw EdgeFailure("runtime", "this runtime was built without \(provider.name)")
        }
        let pairs = told.sorted { $0.key < $1.key }
        let words = pairs.flatMap { [strdup($0.key), strdup($0.value)] }
        defer { words.forEach { free($0) } }
        let keys = stride(from: 0, to: words.count, by: 2).map { UnsafePointer(words[$0]) }
        let values = stride(from: 1, to: words.count, by: 2).map { UnsafePointer(words[$0]) }
        let status = api.SessionOptionsAppendExecutionProvider(
            settings, name, keys, values, keys.count)
        try check("load", status)
    }

    /// What the runtime was built with.
    private func providers() throws -> [String] {
        var names: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?
        var count: Int32 = 0
        try check("runtime", api.GetAvailableProviders(&names, &count))
        guard let names else { return [] }
        defer { _ = api.ReleaseAvailableProviders(names, count) }
        return (0..<Int(count)).compactMap { names[$0].map { String(cString: $0) } }
    }

    // MARK: status

    private static func check(_ api: OrtApi, _ stage: String, _ status: OpaquePointer?) throws {
        guard let status else { return }
        defer { api.ReleaseStatus(status) }
        let message = api.GetErrorMessage(status).map { String(cString: $0) }
        throw EdgeFailure(stage, message ?? "the runtime gave no reason")
    }

    private static func make(
        _ api: OrtApi, _ stage: String,
        _ call: (UnsafeMutablePointer<OpaquePointer?>) -> OpaquePointer?
    ) throws -> OpaquePointer {
        var made: OpaquePointer?
        try check(api, stage, call(&made))
        guard let made else { throw EdgeFailure(stage, "the runtime gave nothing back") }
        return made
    }
}

/// One open session of ONNX Runtime.
final class EdgeOrtSession: EdgeSession {
    let cached: Bool?
    private let outputNames: [String]
    private let runtime: EdgeRuntime
    private let session: OpaquePointer
    private var given: EdgeValues
    private var made: EdgeValues

    init(_ runtime: EdgeRuntime, _ session: OpaquePointer, cached: Bool?) throws {
        (self.runtime, self.session, self.cached) = (runtime, session, cached)
        var allocator: UnsafeMutablePointer<OrtAllocator>?
        try runtime.check("load", runtime.api.GetAllocatorWithDefaultOptions(&allocator))
        var count = 0
        try runtime.check("load", runtime.api.SessionGetOutputCount(session, &count))
        outputNames = try (0..<count).map { index in
            var name: UnsafeMutablePointer<CChar>?
            let status = runtime.api.SessionGetOutputName(session, index, allocator, &name)
            try runtime.check("load", status)
            guard let name else { throw EdgeFailure("load", "output \(index) has no name") }
            defer { _ = runtime.api.AllocatorFree(allocator, name) }
            return String(cString: name)
        }
        given = EdgeValues(runtime, names: [])
        made = EdgeValues(runtime, names: outputNames)
    }

    deinit {
        runtime.api.ReleaseSession(session)
    }

    func feed(_ inputs: [EdgeTensor], _ data: [Data]) throws {
        given = EdgeValues(runtime, names: inputs.map(\.name))
        for (index, input) in inputs.enumerated() {
            try given.bind(
                index, dtype: input.dtype, shape: input.shape, data[index],
                byteCount: data[index].count)
        }
    }

    func run() throws {
        let status = runtime.api.Run(
            session, nil, given.names, given.values, given.count, made.names, made.count,
            made.values)
        if status != nil { try runtime.check("run", status) }
    }

    func outputs() throws -> [EdgeOutput] {
        try outputNames.enumerated().map { try made.output($0.offset, name: $0.element) }
    }

    func pin(_ outputs: [EdgeOutput]) throws {
        made = EdgeValues(runtime, names: outputNames)
        for (index, output) in outputs.enumerated() where !output.bytes.isEmpty {
            try made.bind(
                index, dtype: output.dtype, shape: output.shape, nil,
                byteCount: output.bytes.count)
        }
    }

    func release() {
        made.releaseMade()
    }

    func endProfiling() throws -> String {
        var allocator: UnsafeMutablePointer<OrtAllocator>?
        try runtime.check("run", runtime.api.GetAllocatorWithDefaultOptions(&allocator))
        var file: UnsafeMutablePointer<CChar>?
        try runtime.check("run", runtime.api.SessionEndProfiling(session, allocator, &file))
        guard let file else { throw EdgeFailure("run", "the runtime wrote no profile") }
        defer { _ = runtime.api.AllocatorFree(allocator, file) }
        return String(cString: file)
    }
}

/// Names and values in the form that `Run` takes, with the memory behind them.
final class EdgeValues {
    let count: Int
    let names: UnsafeMutablePointer<UnsafePointer<CChar>?>
    let values: UnsafeMutablePointer<OpaquePointer?>
    private let runtime: EdgeRuntime
    private var owned: Set<Int> = []
    private var buffers: [UnsafeMutableRawPointer] = []

    init(_ runtime: EdgeRuntime, names list: [String]) {
        self.runtime = runtime
        count = list.count
        names = .allocate(capacity: max(count, 1))
        values = .allocate(capacity: max(count, 1))
        names.initialize(repeating: nil, count: max(count, 1))
        values.initialize(repeating: nil, count: max(count, 1))
        for (index, name) in list.enumerated() { names[index] = UnsafePointer(strdup(name)) }
    }

    deinit {
        for index in 0..<count {
            free(UnsafeMutablePointer(mutating: names[index]))
            runtime.api.ReleaseValue(values[index])
        }
        names.deallocate()
        values.deallocate()
        buffers.forEach { $0.deallocate() }
    }

    /// Puts a tensor at `index`, in memory of ours, that stays there for all runs.
    func bind(_ index: Int, dtype: String, shape: [Int], _ data: Data?, byteCount: Int) throws {
        guard let type = EdgeOutput.types[dtype] else {
            throw EdgeFailure("bundle", "the runtime has no type \(dtype)")
        }
        let buffer = UnsafeMutableRawPointer.allocate(byteCount: max(byteCount, 1), alignment: 64)
        buffers.append(buffer)
        if let data { data.copyBytes(to: UnsafeMutableRawBufferPointer(start: buffer, count: byteCount)) }
        let api = runtime.api
        let memory = try runtime.make("bundle") {
            api.CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, $0)
        }
        defer { api.ReleaseMemoryInfo(memory) }
        let dims = shape.map(Int64.init)
        values[index] = try runtime.make("bundle") {
            api.CreateTensorWithDataAsOrtValue(
                memory, buffer, byteCount, dims, dims.count, type, $0)
        }
        owned.insert(index)
    }

    /// Lets go of the values that the runtime made, so that it makes them again.
    func releaseMade() {
        for index in 0..<count where !owned.contains(index) {
            runtime.api.ReleaseValue(values[index])
            values[index] = nil
        }
    }

    /// A copy of what is at `index`.
    func output(_ index: Int, name: String) throws -> EdgeOutput {
        guard let value = values[index] else { throw EdgeFailure("output", "\(name) is missing") }
        let api = runtime.api
        let info = try runtime.make("output") { api.GetTensorTypeAndShape(value, $0) }
        defer { api.ReleaseTensorTypeAndShapeInfo(info) }
        var type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED
        try runtime.check("output", api.GetTensorElementType(info, &type))
        guard let dtype = EdgeOutput.types.first(where: { $0.value == type })?.key,
            let item = EdgeTensor.itemBytes[dtype]
        else { throw EdgeFailure("output", "\(name) has the type \(type.rawValue)") }
        var rank = 0
        try runtime.check("output", api.GetDimensionsCount(info, &rank))
        var dims = [Int64](repeating: 0, count: rank)
        try runtime.check("output", api.GetDimensions(info, &dims, rank))
        let shape = dims.map(Int.init)
        var data: UnsafeMutableRawPointer?
        try runtime.check("output", api.GetTensorMutableData(value, &data))
        let size = shape.reduce(item, *)
        let bytes = data.map { Data(bytes: $0, count: size) } ?? Data()
        return EdgeOutput(name: name, dtype: dtype, shape: shape, bytes: bytes)
    }
}

extension EdgeOutput {
    static let types: [String: ONNXTensorElementDataType] = [
        "float32": ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        "float16": ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        "float64": ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
        "int8": ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        "uint8": ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
        "int16": ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
        "uint16": ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
        "int32": ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        "uint32": ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
        "int64": ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        "uint64": ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
        "bool": ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
    ]
}

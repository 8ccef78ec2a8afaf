// Stands in for Apple's Core ML where there is none: the few names that the runner uses, with the
// signatures of Apple's documentation. A "compiled" package is a copy of it; its outputs are what
// lies in `outputs.json`, whatever comes in, in rows that are longer than they look.
import Foundation

public enum MLComputeUnits { case cpuOnly, cpuAndGPU, all, cpuAndNeuralEngine }

public final class MLModelConfiguration {
    public var computeUnits = MLComputeUnits.all
    public init() {}
}

public enum MLMultiArrayDataType { case double, float32, float16, int32 }

public struct MLModelMetadataKey: Hashable {
    let name: String
    public static let creatorDefinedKey = MLModelMetadataKey(name: "MLModelCreatorDefinedKey")
}

public final class MLModelDescription {
    public let metadata: [MLModelMetadataKey: Any]
    init(_ own: [String: String]) { metadata = [.creatorDefinedKey: own] }
}

public final class MLMultiArray {
    public let shape: [NSNumber]
    public let strides: [NSNumber]
    public let dataType: MLMultiArrayDataType
    public let dataPointer: UnsafeMutableRawPointer

    public convenience init(shape: [NSNumber], dataType: MLMultiArrayDataType) throws {
        self.init(shape, dataType, gap: 0)
    }

    init(_ shape: [NSNumber], _ dataType: MLMultiArrayDataType, gap: Int) {
        (self.shape, self.dataType) = (shape, dataType)
        var step = 1
        var found: [NSNumber] = []
        for (number, size) in shape.reversed().enumerated() {
            found.insert(NSNumber(value: step), at: 0)
            step *= size.intValue + (number == 0 ? gap : 0)
        }
        strides = found
        dataPointer = .allocate(byteCount: max(step, 1) * 8, alignment: 64)
        dataPointer.initializeMemory(as: UInt8.self, repeating: 0xee, count: max(step, 1) * 8)
    }

    deinit { dataPointer.deallocate() }
}

public final class MLFeatureValue {
    public let multiArrayValue: MLMultiArray?
    public init(multiArray: MLMultiArray) { multiArrayValue = multiArray }
}

public protocol MLFeatureProvider {
    var featureNames: Set<String> { get }
    func featureValue(for featureName: String) -> MLFeatureValue?
}

public final class MLDictionaryFeatureProvider: MLFeatureProvider {
    private let values: [String: MLFeatureValue]
    public init(dictionary: [String: Any]) throws {
        values = dictionary.compactMapValues { $0 as? MLFeatureValue }
    }
    public var featureNames: Set<String> { Set(values.keys) }
    public func featureValue(for featureName: String) -> MLFeatureValue? { values[featureName] }
}

struct Fake: Decodable {
    struct Output: Decodable {
        let name: String
        let type: String
        let shape: [Int]
        let values: [Double]
    }
    let ports: String
    /// Sums of the inputs' elements, by name, that alone are taken for right.
    let expects: [String: Double]
    let outputs: [Output]
}

public final class MLModel {
    public let modelDescription: MLModelDescription
    private let fake: Fake

    public static func compileModel(at modelURL: URL) throws -> URL {
        let place = FileManager.default.temporaryDirectory
            .appendingPathComponent("fake-\(UUID().uuidString).mlmodelc")
        try FileManager.default.copyItem(at: modelURL, to: place)
        return place
    }

    public init(contentsOf url: URL, configuration: MLModelConfiguration) throws {
        let data = try Data(contentsOf: url.appendingPathComponent("outputs.json"))
        fake = try JSONDecoder().decode(Fake.self, from: data)
        modelDescription = MLModelDescription(["edgewright.ports": fake.ports])
    }

    public func prediction(from input: MLFeatureProvider) throws -> MLFeatureProvider {
        for (name, sum) in fake.expects {
            guard let array = input.featureValue(for: name)?.multiArrayValue,
                total(array) == sum
            else { throw CocoaError(.coderInvalidValue) }
        }
        let pairs = fake.outputs.map { ($0.name, MLFeatureValue(multiArray: array($0)) as Any) }
        return try MLDictionaryFeatureProvider(dictionary: Dictionary(uniqueKeysWithValues: pairs))
    }

    private func total(_ array: MLMultiArray) -> Double {
        let count = array.shape.reduce(1) { $0 * $1.intValue }
        return (0..<count).reduce(0.0) { sum, index in
            switch array.dataType {
            case .int32: return sum + Double(array.dataPointer.load(fromByteOffset: 4 * index, as: Int32.self))
            default: return sum + Double(array.dataPointer.load(fromByteOffset: 4 * index, as: Float.self))
            }
        }
    }

    private func array(_ output: Fake.Output) -> MLMultiArray {
        let types: [String: MLMultiArrayDataType] = [
            "float32": .float32, "int32": .int32, "float64": .double,
        ]
        let type = types[output.type] ?? .float32
        let array = MLMultiArray(output.shape.map(NSNumber.init(value:)), type, gap: 3)
        for (index, value) in output.values.enumerated() {
            var left = index
            var at = 0
            for axis in output.shape.indices.reversed() {
                at += left % output.shape[axis] * array.strides[axis].intValue
                left /= output.shape[axis]
            }
            switch type {
            case .int32: array.dataPointer.storeBytes(of: Int32(value), toByteOffset: 4 * at, as: Int32.self)
            case .double: array.dataPointer.storeBytes(of: value, toByteOffset: 8 * at, as: Double.self)
            default: array.dataPointer.storeBytes(of: Float(value), toByteOffset: 4 * at, as: Float.self)
            }
        }
        return array
    }
}

/// Objective-C's, which Apple's Foundation brings along.
public func autoreleasepool<Result>(invoking body: () throws -> Result) rethrows -> Result {
    try body()
}

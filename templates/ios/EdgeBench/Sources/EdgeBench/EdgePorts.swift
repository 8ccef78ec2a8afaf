import Foundation

/// An input or output of a Core ML package, and the ONNX tensor that it stands for.
///
/// Core ML's names are identifiers, it has no 64-bit integers and no scalars: `held` is the type
/// in the package (float32, int32), `dtype` the tensor's own.
struct EdgePort: Decodable {
    let name: String
    let onnx: String
    let dtype: String
    let held: String
    let shape: [Int]
    let scalar: Bool
}

/// The ports of a package, as the build wrote them into its metadata.
struct EdgePorts: Decodable {
    static let key = "edgewright.ports"

    let inputs: [EdgePort]
    let outputs: [EdgePort]

    init(json: String?) throws {
        guard let json, let found = try? JSONDecoder().decode(Self.self, from: Data(json.utf8)) else {
            throw EdgeFailure("bundle", "the package does not say which ports are whose")
        }
        self = found
    }
}

extension EdgePort {
    private static let onnxNames = ["float": "float32", "double": "float64"]

    /// The tensor's type by numpy's name.
    var numpy: String { Self.onnxNames[dtype] ?? dtype }

    /// The tensor's bytes in the type that the package holds; C order both.
    func given(_ tensor: EdgeTensor, _ data: Data) throws -> Data {
        if tensor.dtype == held { return data }
        if tensor.dtype.hasPrefix("float") { return encoded(held, decode(tensor.dtype, data)) }
        let values = whole(tensor.dtype, data)
        if held == "int32", values.contains(where: { Int32(exactly: $0) == nil }) {
            throw EdgeFailure("bundle", "\(onnx) has values that 32 bits do not hold")
        }
        return encoded(held, values.map(Double.init))
    }

    /// What Core ML made, as the tensor it stands for. `strides` count elements.
    func told(
        _ memory: UnsafeRawBufferPointer, _ type: String, _ shape: [Int], _ strides: [Int]
    ) throws -> EdgeOutput {
        guard let item = EdgeTensor.itemBytes[type] else {
            throw EdgeFailure("output", "\(name) has the type \(type)")
        }
        var packed = Data(capacity: shape.reduce(item, *))
        for offset in Self.offsets(shape, strides) {
            let at = offset * item
            guard at >= 0, at + item <= memory.count else {
                throw EdgeFailure("output", "\(name) lies outside its memory")
            }
            packed.append(contentsOf: memory[at..<at + item])
        }
        let bytes = type == numpy ? packed : encoded(numpy, decode(type, packed))
        return EdgeOutput(name: onnx, dtype: numpy, shape: scalar ? [] : shape, bytes: bytes)
    }

    /// Where the elements lie, in C order: rows of a Core ML array may be longer than they look.
    private static func offsets(_ shape: [Int], _ strides: [Int]) -> [Int] {
        zip(shape, strides).reduce([0]) { found, axis in
            found.flatMap { start in (0..<axis.0).map { start + $0 * axis.1 } }
        }
    }
}

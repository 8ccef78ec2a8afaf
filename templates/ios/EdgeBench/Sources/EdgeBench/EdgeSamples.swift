import Foundation

/// One tensor of the golden samples: a line of samples.tsv.
public struct EdgeTensor {
    public let sample: Int
    public let role: String
    public let index: Int
    public let dtype: String
    public let shape: [Int]
    public let file: String
    public let name: String
    /// Size of the raw file.
    public let byteCount: Int

    static let itemBytes = [
        "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "int32": 4,
        "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
    ]
    private static let maxBytes = 1 << 31

    /// Nil when the line is none of samples.tsv.
    init?(line: Substring) {
        let fields = line.split(separator: "\t", omittingEmptySubsequences: false)
        guard fields.count == 7, let sample = Self.number(fields[0]), sample >= 0,
            ["input", "output"].contains(fields[1]), let index = Self.number(fields[2]),
            let item = Self.itemBytes[String(fields[3])], let shape = Self.dims(fields[4]),
            Self.isFileName(fields[5])
        else { return nil }
        let size = shape.reduce((item, false)) { product, dim in
            let (value, overflow) = product.0.multipliedReportingOverflow(by: dim)
            return (value, product.1 || overflow)
        }
        guard !size.1, size.0 <= Self.maxBytes else { return nil }
        (self.sample, self.index, self.shape, byteCount) = (sample, index, shape, size.0)
        (role, dtype) = (String(fields[1]), String(fields[3]))
        (file, name) = (String(fields[5]), String(fields[6]))
    }

    private static func number(_ text: Substring) -> Int? {
        text.count < 11 && text.utf8.allSatisfy { (48...57).contains($0) } ? Int(text) : nil
    }

    private static func dims(_ text: Substring) -> [Int]? {
        if text == "-" { return [] }
        let dims = text.split(separator: "x", omittingEmptySubsequences: false).map(number)
        return dims.contains { $0 == nil } || dims.count > 32 ? nil : dims.compactMap { $0 }
    }

    /// A plain name: nothing that could lead out of the samples folder.
    private static func isFileName(_ text: Substring) -> Bool {
        let allowed = Set("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.-")
        return !text.isEmpty && !text.hasPrefix(".") && text.allSatisfy(allowed.contains)
    }
}

/// The folder with the model and its golden samples: an app's resources or the bundle itself.
public struct EdgeBundle {
    public let root: URL
    private static let maxIndexBytes = 16 << 20

    public init(root: URL) {
        self.root = root
    }

    public var model: URL { root.appendingPathComponent(EdgeModel.artifact) }

    public var isComplete: Bool { FileManager.default.fileExists(atPath: model.path) }

    public func readIndex() throws -> [EdgeTensor] {
        let data = try read("samples.tsv", limit: Self.maxIndexBytes)
        guard let text = String(data: data, encoding: .utf8) else {
            throw EdgeFailure("bundle", "samples.tsv is no UTF-8 text")
        }
        return try text.split(separator: "\n").enumerated().map { number, line in
            guard let tensor = EdgeTensor(line: line) else {
                throw EdgeFailure("bundle", "samples.tsv:\(number + 1) is no line of samples")
            }
            return tensor
        }
    }

    /// The tensor's raw little-endian bytes.
    public func read(_ tensor: EdgeTensor) throws -> Data {
        let data = try read(tensor.file, limit: tensor.byteCount)
        guard data.count == tensor.byteCount else {
            throw EdgeFailure("bundle", "\(tensor.file) holds other than \(tensor.byteCount) bytes")
        }
        return data
    }

    private func read(_ name: String, limit: Int) throws -> Data {
        let url = root.appendingPathComponent("samples").appendingPathComponent(name)
        do {
            let file = try FileHandle(forReadingFrom: url)
            defer { try? file.close() }
            return try file.read(upToCount: limit + 1) ?? Data()
        } catch {
            throw EdgeFailure("bundle", "cannot read samples/\(name): \(error.localizedDescription)")
        }
    }
}

/// What ONNX Runtime's CoreML provider takes, and the native package; paths in the bundle.
public struct EdgeCoreMLFiles {
    /// The model for providers that are not the CPU's: optimized only so far that they know its
    /// nodes. A runtime that was built for the CPU's model has none.
    public let artifact: String?
    /// The folder below the cache where the provider keeps what it compiled of it.
    public let key: String
    public let options: [String: String]
    /// An ML Program, where the build could make one.
    public let package: String?
    public let packageKey: String
}

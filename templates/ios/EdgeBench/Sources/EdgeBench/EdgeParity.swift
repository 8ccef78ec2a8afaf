import Foundation

/// How far outputs may be from the golden ones.
///
/// A floating-point element `a` is within it when `|a - e| <= maxAbs + maxRel * max(|e|, floor)`; a
/// limit that is not given counts as 0. `sqnrDb` and `argmax` (fraction of the rows) are limits of
/// their own. With no limit at all the values must be equal. The host of the build uses the same
/// rule.
public struct EdgeTolerance {
    let maxAbs: Double?
    let maxRel: Double?
    let floor: Double
    let sqnrDb: Double?
    let argmax: Double?
}

/// An output as the device computed it; little-endian bytes, C order.
public struct EdgeOutput {
    public let name: String
    public let dtype: String
    public let shape: [Int]
    public let bytes: Data
}

extension EdgeTolerance {
    /// Why `actual` is not within this tolerance of the golden tensor; nil when it is.
    public func divergence(_ golden: EdgeTensor, _ expected: Data, _ actual: EdgeOutput) -> String? {
        if actual.dtype != golden.dtype {
            return "dtype \(actual.dtype), expected \(golden.dtype)"
        }
        if actual.shape != golden.shape {
            return "shape \(actual.shape), expected \(golden.shape)"
        }
        if expected.isEmpty { return nil }
        if !golden.dtype.hasPrefix("float") {
            return integers(golden.dtype, expected, actual.bytes)
        }
        let e = decode(golden.dtype, expected)
        let a = decode(golden.dtype, actual.bytes)
        return notFinite(e, a) ?? elements(e, a) ?? sqnr(e, a) ?? argmaxRows(e, a, golden.shape)
    }

    private func integers(_ dtype: String, _ expected: Data, _ actual: Data) -> String? {
        let allowed = dtype == "bool" || (maxAbs ?? 0) < 1 ? 0 : maxAbs ?? 0
        let e = whole(dtype, expected)
        let a = whole(dtype, actual)
        let largest = zip(e, a).map { gap($0, $1, unsigned: dtype == "uint64") }.max() ?? 0
        return largest <= allowed ? nil : "integers differ by up to \(largest), allowed \(allowed)"
    }

    /// The larger minus the smaller: always fits 64 bits without a sign.
    private func gap(_ e: Int64, _ a: Int64, unsigned: Bool) -> Double {
        let larger = unsigned ? UInt64(bitPattern: e) >= UInt64(bitPattern: a) : e >= a
        return Double(UInt64(bitPattern: larger ? e &- a : a &- e))
    }

    private func notFinite(_ e: [Double], _ a: [Double]) -> String? {
        let other = e.indices.first { i in
            let same = e[i] == a[i] || (e[i].isNaN && a[i].isNaN)
            return !(e[i].isFinite && a[i].isFinite) && !same
        }
        if let other { return "element \(other) is \(a[other]), expected \(e[other])" }
        return e.contains(where: \.isFinite) ? nil : "no finite element to compare"
    }

    private func elements(_ e: [Double], _ a: [Double]) -> String? {
        if maxAbs == nil, maxRel == nil, sqnrDb != nil || argmax != nil { return nil }
        let beyond = e.indices.filter { i in
            let limit = (maxAbs ?? 0) + (maxRel ?? 0) * max(abs(e[i]), floor)
            return e[i].isFinite && abs(a[i] - e[i]) > limit
        }
        let worst = beyond.max { abs(a[$0] - e[$0]) < abs(a[$1] - e[$1]) }
        guard let worst else { return nil }
        return "\(beyond.count) of \(e.count) elements: \(a[worst]) at \(worst), expected \(e[worst])"
    }

    private func sqnr(_ e: [Double], _ a: [Double]) -> String? {
        guard let wanted = sqnrDb else { return nil }
        let finite = e.indices.filter { e[$0].isFinite }
        let signal = finite.reduce(0.0) { $0 + e[$1] * e[$1] }
        let noise = finite.reduce(0.0) { $0 + (a[$1] - e[$1]) * (a[$1] - e[$1]) }
        let found = 10 * log10(signal / noise)
        return noise == 0 || found >= wanted ? nil : "SQNR \(found) dB, wanted \(wanted) dB"
    }

    private func argmaxRows(_ e: [Double], _ a: [Double], _ shape: [Int]) -> String? {
        guard let wanted = argmax, let width = shape.last, width > 1 else { return nil }
        let starts = stride(from: 0, to: e.count, by: width)
        let agreed = starts.filter { start in
            let row = start..<start + width
            if row.contains(where: { a[$0].isNaN || e[$0].isNaN }) { return false }
            let chosen = row.max { a[$0] < a[$1] } ?? start
            return row.allSatisfy { e[$0] <= e[chosen] }
        }
        let found = Double(agreed.count) / Double(e.count / width)
        return found >= wanted ? nil : "argmax agrees in \(found) of the rows, wanted \(wanted)"
    }
}

/// The values of little-endian bytes; integers of 64 bits are rounded.
func decode(_ dtype: String, _ bytes: Data) -> [Double] {
    switch dtype {
    case "float32": return read(bytes) { Double(Float(bitPattern: $0)) }
    case "float64": return read(bytes) { Double(bitPattern: $0) }
    case "float16": return read(bytes, half)
    default: return whole(dtype, bytes).map(Double.init)
    }
}

/// The values of little-endian bytes that hold integers.
func whole(_ dtype: String, _ bytes: Data) -> [Int64] {
    switch dtype {
    case "int64", "uint64": return read(bytes) { Int64(bitPattern: $0) }
    case "int32": return read(bytes) { Int64(Int32(bitPattern: $0)) }
    case "uint32": return read(bytes) { (bits: UInt32) in Int64(bits) }
    case "int16": return read(bytes) { Int64(Int16(bitPattern: $0)) }
    case "uint16": return read(bytes) { (bits: UInt16) in Int64(bits) }
    case "int8": return read(bytes) { Int64(Int8(bitPattern: $0)) }
    default: return read(bytes) { (bits: UInt8) in Int64(bits) }
    }
}

private func read<Bits: FixedWidthInteger, Value>(
    _ bytes: Data, _ convert: (Bits) -> Value
) -> [Value] {
    let width = Bits.bitWidth / 8
    return bytes.withUnsafeBytes { raw in
        stride(from: 0, to: raw.count - raw.count % width, by: width).map {
            convert(Bits(littleEndian: raw.loadUnaligned(fromByteOffset: $0, as: Bits.self)))
        }
    }
}

/// IEEE 754 binary16: 1 bit sign, 5 bits exponent, 10 bits fraction.
private func half(_ bits: UInt16) -> Double {
    let exponent = Int(bits >> 10 & 0x1f)
    let fraction = Double(bits & 0x3ff)
    let size: Double
    switch exponent {
    case 0: size = scalbn(fraction, -24)
    case 0x1f: size = fraction == 0 ? .infinity : .nan
    default: size = scalbn(fraction + 1024, exponent - 25)
    }
    return bits & 0x8000 == 0 ? size : -size
}

/// Values as little-endian bytes of a type: rounded to it, integers cut at its limits.
func encoded(_ dtype: String, _ values: [Double]) -> Data {
    switch dtype {
    case "float32": return bytes(values) { Float($0).bitPattern }
    case "float64": return bytes(values, \.bitPattern)
    case "float16": return bytes(values, halfBits)
    case "int64": return bytes(values) { Int64(clamping: integer($0)) }
    case "int32": return bytes(values) { Int32(clamping: integer($0)) }
    case "int16": return bytes(values) { Int16(clamping: integer($0)) }
    case "int8": return bytes(values) { Int8(clamping: integer($0)) }
    case "uint64": return bytes(values) { UInt64(clamping: integer($0)) }
    case "uint32": return bytes(values) { UInt32(clamping: integer($0)) }
    case "uint16": return bytes(values) { UInt16(clamping: integer($0)) }
    case "bool": return bytes(values) { UInt8($0 == 0 ? 0 : 1) }
    default: return bytes(values) { UInt8(clamping: integer($0)) }
    }
}

private func bytes<Bits: FixedWidthInteger>(_ values: [Double], _ convert: (Double) -> Bits) -> Data {
    var data = Data(capacity: values.count * Bits.bitWidth / 8)
    for value in values { withUnsafeBytes(of: convert(value).littleEndian) { data.append(contentsOf: $0) } }
    return data
}

private func integer(_ value: Double) -> Int {
    Int(exactly: value.rounded(.towardZero)) ?? (value > 0 ? .max : value < 0 ? .min : 0)
}

/// Rounded to binary16, ties to even. (Swift's Float16 is not there on Intel Macs.)
private func halfBits(_ value: Double) -> UInt16 {
    let sign: UInt16 = value.sign == .minus ? 0x8000 : 0
    let size = abs(value)
    if value.isNaN { return 0x7e00 }
    if size >= 65520 { return sign | 0x7c00 }
    let exponent = max(-14, size == 0 ? -14 : Int(size.exponent))
    let units = Int(scalbn(size, 10 - exponent).rounded(.toNearestOrEven))
    // The leading one of a normal number adds 1 to the exponent; so does a carry.
    return sign | UInt16((exponent + 14) << 10 + units)
}

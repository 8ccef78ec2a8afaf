import Foundation

#if canImport(CryptoKit)
import CryptoKit

/// SHA-256 in hexadecimal digits.
func sha256(_ data: Data) -> String { hex(SHA256.hash(data: data)) }
#else
/// SHA-256 in hexadecimal digits (FIPS 180-4), where the system brings none.
func sha256(_ data: Data) -> String {
    var padded = [UInt8](data) + [0x80]
    padded += [UInt8](repeating: 0, count: (120 - padded.count % 64) % 64)
    padded += bytes(UInt64(data.count) * 8)
    var state = roots(2, first: 8)
    let constants = roots(3, first: 64)
    for block in stride(from: 0, to: padded.count, by: 64) {
        mix(&state, padded[block..<block + 64], constants)
    }
    return hex(state.flatMap { bytes($0) })
}

private func bytes<Word: FixedWidthInteger>(_ word: Word) -> [UInt8] {
    withUnsafeBytes(of: word.bigEndian, Array.init)
}

/// The first 32 bits behind the point of the square or cube roots of the first primes.
private func roots(_ degree: Int, first count: Int) -> [UInt32] {
    let primes = (2...311).filter { n in (2..<n).allSatisfy { n % $0 != 0 } }
    return primes.prefix(count).map { prime in
        let root = degree == 2 ? Double(prime).squareRoot() : cbrt(Double(prime))
        return UInt32(truncatingIfNeeded: UInt64((root - root.rounded(.down)) * 0x1p32))
    }
}

private func mix(_ state: inout [UInt32], _ block: ArraySlice<UInt8>, _ constants: [UInt32]) {
    func turn(_ word: UInt32, _ count: UInt32) -> UInt32 { word >> count | word << (32 - count) }
    var w = stride(from: block.startIndex, to: block.endIndex, by: 4).map { at in
        block[at..<at + 4].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
    }
    for i in 16..<64 {
        let s0 = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3
        let s1 = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10
        w.append(w[i - 16] &+ s0 &+ w[i - 7] &+ s1)
    }
    var v = state
    for i in 0..<64 {
        let s1 = turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25)
        let choice = v[4] & v[5] ^ ~v[4] & v[6]
        let first = v[7] &+ s1 &+ choice &+ constants[i] &+ w[i]
        let s0 = turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22)
        let second = s0 &+ (v[0] & v[1] ^ v[0] & v[2] ^ v[1] & v[2])
        v = [first &+ second, v[0], v[1], v[2], v[3] &+ first, v[4], v[5], v[6]]
    }
    for i in 0..<8 { state[i] &+= v[i] }
}
#endif

private func hex<Bytes: Sequence>(_ bytes: Bytes) -> String where Bytes.Element == UInt8 {
    bytes.map { String(UInt16($0) | 0x100, radix: 16).dropFirst() }.joined()
}

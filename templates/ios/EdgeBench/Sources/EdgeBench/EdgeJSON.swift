/// One JSON object on one line. Keys keep their order; numbers here are integers only.
func jsonLine(_ members: KeyValuePairs<String, JSON>, _ more: [(String, JSON)] = []) -> String {
    let all = members.map { ($0.key, $0.value) } + more
    return "{" + all.map { quoted($0.0) + ":" + $0.1.text }.joined(separator: ",") + "}"
}

enum JSON {
    case null
    case bool(Bool)
    case int(Int)
    case ints([Int])
    case string(String)

    var text: String {
        switch self {
        case .null: return "null"
        case .bool(let value): return value ? "true" : "false"
        case .int(let value): return String(value)
        case .ints(let values): return "[" + values.map(String.init).joined(separator: ",") + "]"
        case .string(let value): return quoted(value)
        }
    }
}

/// Escapes what JSON demands; a Swift string is always valid Unicode.
private func quoted(_ text: String) -> String {
    var line = "\""
    for scalar in text.unicodeScalars {
        switch scalar {
        case "\"", "\\":
            line += "\\" + String(scalar)
        case _ where scalar.value < 0x20:
            let hex = String(scalar.value, radix: 16)
            line += "\\u" + String(repeating: "0", count: 4 - hex.count) + hex
        default:
            line.unicodeScalars.append(scalar)
        }
    }
    return line + "\""
}

import EdgeBench
import Foundation

// The runner as a program of the command line: on a Mac, and for a check on Linux.
let words = Array(CommandLine.arguments.dropFirst())
if words.contains("--version") {
    print("edge-bench protocol 1, made for ONNX Runtime \(EdgeModel.runtimeVersion)")
    exit(0)
}

// Who listens may go away: a line that nobody gets is missed there, and no reason to crash.
signal(SIGPIPE, SIG_IGN)

func say(_ line: String) {
    try? FileHandle.standardOutput.write(contentsOf: Data((line + "\n").utf8))
}

do {
    let options = try EdgeOptions(arguments: words)
    guard let folder = options.bundle else { throw EdgeFailure("arguments", "--bundle is missing") }
    let runner = EdgeRunner(bundle: EdgeBundle(root: folder), options: options, emit: say)
    exit(runner.run() ? 0 : 4)
} catch {
    say(EdgeRunner.line(for: error as? EdgeFailure ?? EdgeFailure("arguments", "\(error)")))
    exit(2)
}

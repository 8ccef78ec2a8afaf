import EdgeBench
import SwiftUI

@main
struct EdgeBenchApp: App {
    var body: some Scene {
        WindowGroup { BenchmarkView() }
    }
}

/// One button and the runner's lines. Started with `--run` it measures at once and ends itself;
/// the runner's options may follow.
struct BenchmarkView: View {
    @StateObject private var benchmark = Benchmark()

    var body: some View {
        VStack(alignment: .leading) {
            Text(verbatim: "\(EdgeModel.name) \(EdgeModel.version)").font(.headline)
            Button("Measure") { benchmark.start() }
                .buttonStyle(.borderedProminent)
                .disabled(benchmark.isRunning)
            ScrollView {
                Text(verbatim: benchmark.lines.joined(separator: "\n"))
                    .font(.system(.footnote, design: .monospaced))
                    .textSelection(.enabled)
                    .frame(maxWidth: .infinity, alignment: .leading)
            }
        }
        .padding()
        .onAppear {
            // A dark screen stops the measurement.
            UIApplication.shared.isIdleTimerDisabled = true
            if CommandLine.arguments.contains("--run") { benchmark.start(thenExit: true) }
        }
    }
}

@MainActor
final class Benchmark: ObservableObject {
    @Published private(set) var lines: [String] = []
    @Published private(set) var isRunning = false

    func start(thenExit: Bool = false) {
        isRunning = true
        lines = []
        let thread = Thread {
            let good = measure { line in
                Task { @MainActor in self.lines.append(line) }
            }
            if thenExit { exit(good ? 0 : 4) }
            Task { @MainActor in self.isRunning = false }
        }
        thread.qualityOfService = .userInitiated
        thread.stackSize = 8 << 20 // the default of 512 KB is little for a deep graph
        thread.start()
    }
}

/// Measures; each line goes to standard output, to Documents/edge.jsonl and to `show`.
private func measure(_ show: @escaping (String) -> Void) -> Bool {
    let documents = FileManager.default.urls(for: .documentDirectory, in: .userDomainMask)[0]
    let record = documents.appendingPathComponent("edge.jsonl")
    FileManager.default.createFile(atPath: record.path, contents: nil)
    let file = try? FileHandle(forWritingTo: record)
    let emit = { (line: String) in
        let data = Data((line + "\n").utf8)
        FileHandle.standardOutput.write(data)
        file?.write(data)
        show(line)
    }
    do {
        var options = try EdgeOptions(arguments: Array(CommandLine.arguments.dropFirst()))
        options.output = documents
        let bundle = EdgeBundle(root: Bundle.main.resourceURL ?? documents)
        return EdgeRunner(bundle: bundle, options: options, emit: emit).run()
    } catch {
        let failure = error as? EdgeFailure ?? EdgeFailure("arguments", "\(error)")
        emit(EdgeRunner.line(for: failure))
        return false
    }
}

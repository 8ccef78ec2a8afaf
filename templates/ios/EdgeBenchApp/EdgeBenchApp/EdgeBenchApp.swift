import EdgeBench
import SwiftUI

@main
struct EdgeBenchApp: App {
    var body: some Scene {
        WindowGroup { BenchmarkView() }
    }
}

/// The way, one button and the runner's lines. Started with `--run` it measures at once and ends
/// itself; the runner's options may follow, `--provider` for the way.
///
/// Peak memory is the process's: start the app anew for each way whose peak is to mean something.
struct BenchmarkView: View {
    @StateObject private var benchmark = Benchmark()
    @State private var way = EdgeModel.ways[0]

    var body: some View {
        VStack(alignment: .leading) {
            Text(verbatim: "\(EdgeModel.name) \(EdgeModel.version)").font(.headline)
            Picker("Way", selection: $way) {
                ForEach(EdgeModel.ways, id: \.self) { Text(verbatim: $0) }
            }
            Button("Measure") { benchmark.start(["--provider", way]) }
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
            let words = Array(CommandLine.arguments.dropFirst())
            if words.contains("--run") { benchmark.start(words, thenExit: true) }
        }
    }
}

@MainActor
final class Benchmark: ObservableObject {
    @Published private(set) var lines: [String] = []
    @Published private(set) var isRunning = false

    func start(_ words: [String], thenExit: Bool = false) {
        isRunning = true
        lines = []
        let thread = Thread {
            let good = measure(words) { line in
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

/// Measures; each line goes to standard output, to a record in Documents and to `show`.
private func measure(_ words: [String], _ show: @escaping (String) -> Void) -> Bool {
    let documents = folder(.documentDirectory)
    var file: FileHandle?
    let emit = { (line: String) in
        let data = Data((line + "\n").utf8)
        FileHandle.standardOutput.write(data)
        file?.write(data)
        show(line)
    }
    do {
        var options = try EdgeOptions(arguments: words)
        file = try newRecord(documents, options.record)
        options.output = documents
        if let cache = options.cache { options.cache = try kept(cache.lastPathComponent) }
        let bundle = EdgeBundle(root: Bundle.main.resourceURL ?? documents)
        return EdgeRunner(bundle: bundle, options: options, emit: emit).run()
    } catch {
        let failure = error as? EdgeFailure ?? EdgeFailure("arguments", "\(error)")
        emit(EdgeRunner.line(for: failure))
        return false
    }
}

/// An empty record; those of earlier runs are removed.
private func newRecord(_ documents: URL, _ name: String) throws -> FileHandle {
    let files = FileManager.default
    for old in try files.contentsOfDirectory(at: documents, includingPropertiesForKeys: nil)
    where old.pathExtension == "jsonl" {
        try files.removeItem(at: old)
    }
    let record = documents.appendingPathComponent(name)
    files.createFile(atPath: record.path, contents: nil)
    return try FileHandle(forWritingTo: record)
}

private func folder(_ kind: FileManager.SearchPathDirectory) -> URL {
    FileManager.default.urls(for: kind, in: .userDomainMask)[0]
}

/// A folder of the app for what is compiled: `--cache` only names it here.
private func kept(_ name: String) throws -> URL {
    let place = folder(.cachesDirectory).appendingPathComponent(name, isDirectory: true)
    try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
    return place
}

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
    private let left = NotificationCenter.default.publisher(
        for: UIApplication.didEnterBackgroundNotification)

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
        .onReceive(left) { _ in benchmark.leave() }
    }
}

@MainActor
final class Benchmark: ObservableObject {
    @Published private(set) var lines: [String] = []
    @Published private(set) var isRunning = false

    /// In the background iOS suspends the app and refuses it the GPU: such times say nothing.
    func leave() {
        guard isRunning else { return }
        let why = "the app left the screen: keep the phone unlocked and the app in front"
        Output.shared.say(EdgeRunner.line(for: EdgeFailure("run", why)))
        exit(4)
    }

    func start(_ words: [String], thenExit: Bool = false) {
        isRunning = true
        lines = []
        signal(SIGPIPE, SIG_IGN) // the console may be cut off; the record goes on
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
    let emit = { (line: String) in
        Output.shared.say(line)
        show(line)
    }
    do {
        var options = try EdgeOptions(arguments: words)
        Output.shared.begin(try newRecord(documents, options.record))
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

/// Standard output and the record, by line. What cannot be written (no space, no console) is missing
/// in the record, which then has no end: that is seen, and no reason to crash.
private final class Output {
    static let shared = Output()
    private let lock = NSLock()
    private var record: FileHandle?

    func begin(_ record: FileHandle) {
        lock.lock()
        defer { lock.unlock() }
        self.record = record
    }

    func say(_ line: String) {
        let data = Data((line + "\n").utf8)
        lock.lock()
        defer { lock.unlock() }
        try? FileHandle.standardOutput.write(contentsOf: data)
        try? record?.write(contentsOf: data)
    }
}

/// An empty record; records and profiles of earlier runs are removed.
private func newRecord(_ documents: URL, _ name: String) throws -> FileHandle {
    let files = FileManager.default
    for old in try files.contentsOfDirectory(at: documents, includingPropertiesForKeys: nil)
    where ["jsonl", "json"].contains(old.pathExtension) {
        try files.removeItem(at: old)
    }
    let record = documents.appendingPathComponent(name)
    files.createFile(atPath: record.path, contents: nil)
    return try FileHandle(forWritingTo: record)
}

private func folder(_ kind: FileManager.SearchPathDirectory) -> URL {
    FileManager.default.urls(for: kind, in: .userDomainMask)[0]
}

/// A folder of the app for what is compiled: `--cache` only names it here. Others go: one is kept.
private func kept(_ name: String) throws -> URL {
    let files = FileManager.default
    let all = folder(.cachesDirectory).appendingPathComponent("edge", isDirectory: true)
    let place = all.appendingPathComponent(name, isDirectory: true)
    try files.createDirectory(at: place, withIntermediateDirectories: true)
    for old in try files.contentsOfDirectory(at: all, includingPropertiesForKeys: nil)
    where old.lastPathComponent != place.lastPathComponent {
        try files.removeItem(at: old)
    }
    return place
}

import EdgeBench
import XCTest

/// Runs in a simulator, on a Mac, and inside the app on a phone.
final class EdgeBenchTests: XCTestCase {
    private var bundle: EdgeBundle!

    override func setUpWithError() throws {
        continueAfterFailure = false
        bundle = try XCTUnwrap(Self.places.map(EdgeBundle.init).first { $0.isComplete }, "no model")
    }

    func testGoldenSamplesAreWithinTolerance() throws {
        let golden = try bundle.readIndex().filter { $0.role == "output" }.count
        var compared = 0
        var divergences: [String] = []
        var options = EdgeOptions()
        options.checkOnly = true
        try run(options) { [bundle] expected, output in
            guard let expected, let bundle else { return }
            compared += 1
            let data = try bundle.read(expected)
            if let reason = EdgeModel.tolerance.divergence(expected, data, output) {
                divergences.append("sample \(expected.sample) \(expected.name): \(reason)")
            }
        }
        XCTAssertEqual(compared, golden, "outputs compared")
        XCTAssertEqual(divergences, [], "outputs outside the tolerance")
    }

    /// Options come from `TEST_RUNNER_EDGE_OPTIONS="--iterations 200"` in xcodebuild's environment.
    func testMeasures() throws {
        let words = ProcessInfo.processInfo.environment["EDGE_OPTIONS"] ?? ""
        let options = try EdgeOptions(arguments: words.split(separator: " ").map(String.init))
        let lines = try run(options) { _, _ in }
        XCTAssertEqual(lines.last?.hasPrefix("{\"event\":\"end\""), true)
    }

    @discardableResult
    private func run(_ options: EdgeOptions, inspect: @escaping EdgeRunner.Inspect) throws -> [String] {
        var lines: [String] = []
        let runner = EdgeRunner(bundle: bundle, options: options, inspect: inspect) { line in
            print(line)
            lines.append(line)
        }
        XCTAssertTrue(runner.run(), "the runner said \(lines.last ?? "nothing")")
        return lines
    }

    /// The app's resources on a phone; the bundle that this package lies in everywhere else.
    private static var places: [URL] {
        let sources = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        let bundle = sources.appendingPathComponent("../../../..").standardizedFileURL
        return [Bundle.main.resourceURL, bundle].compactMap { $0 }
    }
}

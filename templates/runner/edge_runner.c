/* edge_runner: loads a bundle's artifact, runs the golden samples, measures.
 *
 * Prints JSON lines on standard output (runner protocol 1) and nothing else; the last line is
 * "end" or "error", and an error is a non-zero exit. Outputs are hashed and written here and
 * compared on the host.
 */
#include <stdlib.h>
#include <string.h>

#include "edge_runner.h"

enum {
    BLOCK = 10, /* runs a warm-up median is taken of */
    LINE = 100, /* timed samples printed on one line */
};

/* ---- samples ---------------------------------------------------------------------------- */

struct bound {
    struct job *job;
    size_t count;
    char **data; /* the inputs' memory */
};

static struct bound prepare(const char *folder, int64_t sample)
{
    const struct tensor *tensor = inputs, *end = inputs + input_count;
    struct bound made = {NULL, 0, NULL};

    while (tensor < end && tensor->sample < sample)
        tensor++;
    while (tensor + made.count < end && tensor[made.count].sample == sample)
        made.count++;
    made.data = allocate(made.count, sizeof *made.data);
    stage = "bundle";
    for (size_t i = 0; i < made.count; i++) {
        char *path = join(folder, tensor[i].file);
        made.data[i] = read_file(path, tensor[i].bytes);
        free(path);
    }
    stage = "run";
    made.job = bind_inputs(tensor, made.count, made.data);
    return made;
}

static void dispose(struct bound *bound)
{
    unbind(bound->job);
    for (size_t i = 0; i < bound->count; i++)
        free(bound->data[i]);
    free(bound->data);
}

static void put_outputs(struct job *job, int64_t sample)
{
    stage = "output";
    for (size_t i = 0; i < output_count(); i++) {
        struct output output;
        get_output(job, i, &output);
        put_output(&output, sample, i);
    }
    stage = "run";
}

/* Sample 0 stays bound for the timed runs; the others come and go. */
static struct bound run_samples(const char *folder)
{
    struct bound first = prepare(folder, 0);
    int64_t ns = run(first.job);
    put("{'event':'first','ns':#}\n", ns);
    put_outputs(first.job, 0);
    for (int64_t sample = 1; sample < sample_count; sample++) {
        struct bound other = prepare(folder, sample);
        run(other.job);
        put_outputs(other.job, sample);
        dispose(&other);
    }
    return first;
}

/* ---- measuring -------------------------------------------------------------------------- */

/* Twice the median of BLOCK numbers, which it sorts. */
static int64_t double_median(int64_t *ns)
{
    for (int i = 1; i < BLOCK; i++)
        for (int j = i; j > 0 && ns[j] < ns[j - 1]; j--) {
            int64_t larger = ns[j - 1];
            ns[j - 1] = ns[j];
            ns[j] = larger;
        }
    return ns[BLOCK / 2 - 1] + ns[BLOCK / 2];
}

/* The medians of two successive blocks are within 3 % of the larger. */
static bool agree(int64_t one, int64_t other)
{
    int64_t larger = one > other ? one : other, smaller = one > other ? other : one;
    return (larger - smaller) * 100 <= larger * 3;
}

static void warm_up(struct job *job)
{
    int64_t block[BLOCK], last = -1, runs = 0, spent = 0, start = now();
    bool stable = false;

    while (runs < options.warmup || (spent < options.warmup_limit_ns &&
                                     (spent < options.warmup_ns || !stable))) {
        block[runs++ % BLOCK] = run(job);
        spent = now() - start;
        if (runs % BLOCK == 0) {
            int64_t median = double_median(block);
            stable = last >= 0 && agree(last, median);
            last = median;
        }
    }
    put("{'event':'warmup','runs':#,'ns':#,'stable':", runs, spent);
    put(stable ? "true}\n" : "false}\n");
}

struct timing {
    int64_t *ns; /* of each run */
    int64_t runs, wall_ns, cpu_ns, switches;
};

static void time_runs(struct job *job, struct timing *timing)
{
    int64_t room = options.iterations < 4096 ? options.iterations : 4096;
    timing->ns = allocate(room, sizeof *timing->ns);
    timing->switches = involuntary_switches();
    timing->cpu_ns = cpu_ns();
    int64_t start = now();

    while (timing->wall_ns < options.max_ns &&
           (timing->runs < options.iterations || timing->wall_ns < options.min_ns)) {
        if (timing->runs == room) { /* between two runs, so no sample sees it */
            room *= 2;
            timing->ns = realloc(timing->ns, room * sizeof *timing->ns);
            if (!timing->ns)
                fail("out of memory for %" PRId64 " samples", room);
        }
        timing->ns[timing->runs++] = run(job);
        timing->wall_ns = now() - start;
    }
    timing->cpu_ns = cpu_ns() - timing->cpu_ns;
    if (timing->switches >= 0)
        timing->switches = involuntary_switches() - timing->switches;
}

static void put_samples(const struct timing *timing)
{
    for (int64_t done = 0; done < timing->runs; done += LINE) {
        int64_t rest = timing->runs - done;
        put("{'event':'sample','ns':[");
        put_list(timing->ns + done, rest < LINE ? rest : LINE);
        put("}\n");
    }
}

static void measure(struct job *job, int64_t load_peak)
{
    struct timing timing = {NULL, 0, 0, 0, 0};
    if (!options.check_only)
        warm_up(job);
    int64_t peak = peak_bytes();
    if (!options.check_only) {
        reset_peak();
        time_runs(job, &timing);
        /* Our memory for the samples is not the model's. */
        int64_t later = peak_bytes() - timing.runs * (int64_t)sizeof *timing.ns;
        peak = later > peak ? later : peak;
    }
    put_samples(&timing);
    put("{'event':'memory','peak_bytes':#,'load_peak_bytes':#}\n", peak, load_peak);
    if (options.profile)
        put_profile();
    put("{'event':'end','runs':#,'wall_ns':#,'cpu_ns':#,'involuntary_switches':#}\n", timing.runs,
        timing.wall_ns, timing.cpu_ns, timing.switches);
    free(timing.ns);
}

static char *library;

static void take_library(const char *name)
{
    char *wanted = text("%s%s%s", library_prefix, runtime_library, library_suffix);
    bool is = strncmp(name, wanted, strlen(wanted)) == 0;
    if (is && library)
        fail("%s/runtime holds more than one %s*: choose with --library", options.bundle, wanted);
    if (is)
        library = text("%s/runtime/%s", options.bundle, name);
    free(wanted);
}

static void find_library(void)
{
    char *folder = join(options.bundle, "runtime");
    each_name(folder, take_library);
    if (!library)
        fail("%s holds no %s%s%s*", folder, library_prefix, runtime_library, library_suffix);
    free(folder);
}

int run_main(char **arguments)
{
    take_standard_output();
    parse_arguments(arguments);

    stage = "bundle";
    char *artifact = find_artifact();
    char *folder = join(options.bundle, "samples");
    read_index(folder);
    read_options();

    stage = "runtime";
    if (!options.library)
        find_library();
    open_runtime(options.library ? options.library : library);

    stage = "load";
    load(artifact);
    int64_t load_peak = peak_bytes();
    reset_peak();

    struct bound first = run_samples(folder);
    measure(first.job, load_peak);

    dispose(&first);
    close_runtime();
    free(artifact);
    free(folder);
    return 0;
}

/* edge_runner: what its parts know of each other.
 *
 * edge_runner.c     main: the run, measuring
 * edge_arguments.c  the command line
 * edge_lines.c      JSON lines, failing
 * edge_bundle.c     samples.tsv, options.tsv, the artifact: untrusted input
 * edge_outputs.c    SHA-256, output files
 * edge_posix.c, edge_windows.c            the system; one of them is compiled in
 * edge_onnxruntime.c, edge_openvino.c     the runtime; one of them is compiled in
 */
#ifndef EDGE_RUNNER_H
#define EDGE_RUNNER_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "samples are little endian");

enum {
    MAX_RANK = 32,
    MAX_TENSORS = 10000,
};
#define PROTOCOL INT64_C(1)
#define MAX_TENSOR_BYTES (INT64_C(1) << 31)

#if defined __x86_64__
#define ARCH "x86_64"
#elif defined __aarch64__
#define ARCH "aarch64"
#elif defined __arm__
#define ARCH "armv7l"
#elif defined __riscv
#define ARCH "riscv64"
#else
#error "no name for this architecture"
#endif

#define NO_RETURN __attribute__((noreturn))
#ifdef _WIN32
#define PRINTF __attribute__((format(gnu_printf, 1, 2)))
typedef wchar_t native; /* what the system's paths are made of */
#else
#define PRINTF __attribute__((format(printf, 1, 2)))
typedef char native;
#endif

/* ---- edge_lines.c ----------------------------------------------------------------------- */

extern int out; /* our own standard output */
extern const char *stage; /* what "error" says; moves on with the work */

bool write_all(int file, const char *data, size_t size);
/* Prints JSON: ' is a double quote, # an int64_t, $ a string (null when it is NULL). */
void put(const char *format, ...);
/* Between these two put() prints into a file. */
void put_into(int file, const char *path);
void put_back(void);
/* The rest of a list that put() has opened. */
void put_list(const int64_t *numbers, int64_t count);
char hex_digit(unsigned number);
NO_RETURN PRINTF void fail(const char *format, ...);
PRINTF char *text(const char *format, ...);
char *join(const char *folder, const char *name);
/* Zeroed, and one element more than asked: calloc(0) may be NULL, and text gets its NUL. */
void *allocate(size_t count, size_t size);

/* ---- edge_arguments.c ------------------------------------------------------------------- */

struct options {
    const char *bundle, *output, *library, *profile, *provider, *optimization, *cache;
    int64_t warmup, warmup_ns, warmup_limit_ns, iterations, min_ns, max_ns, threads;
    bool check_only;
};
extern struct options options;

/* Those of --optimization, in their order: disabled, basic, extended, all. */
int optimization_level(void);
void parse_arguments(char **word);
/* The number that text is from end to end, -1 when it is none or above the limit. */
int64_t parse_number(const char *text, int64_t limit);

/* ---- edge_bundle.c ---------------------------------------------------------------------- */

/* In the order of the backends' tables of their own numbers. */
enum {
    DTYPE_FLOAT32,
    DTYPE_FLOAT16,
    DTYPE_FLOAT64,
    DTYPE_INT8,
    DTYPE_UINT8,
    DTYPE_INT16,
    DTYPE_UINT16,
    DTYPE_INT32,
    DTYPE_UINT32,
    DTYPE_INT64,
    DTYPE_UINT64,
    DTYPE_BOOL,
    DTYPES,
};
extern const struct dtype {
    char name[8];
    uint8_t bytes;
} dtypes[DTYPES];

struct tensor { /* a golden input */
    int64_t sample;
    const char *name, *file;
    int dtype;
    size_t rank, bytes;
    int64_t shape[MAX_RANK];
};
extern struct tensor *inputs; /* in the order of samples.tsv */
extern size_t input_count;
extern int64_t sample_count;
extern const char **golden_names; /* of the outputs, in their order */
extern int64_t golden_count;

struct settings { /* of runner/options.tsv: "provider." and "session." by key */
    const char **keys, **values;
    size_t count;
};
extern struct settings provider_options, session_entries;
extern bool cuda_graph, all_nodes; /* "runner.": capture one; the provider has to run every node */

/* All of a regular file plus a NUL. wanted is its size, or -1 for what an index may have. */
char *read_file(const char *path, int64_t wanted);
void read_index(const char *folder);
void read_options(void);
/* The only model of the bundle, of those that the backend reads. */
char *find_artifact(void);

/* ---- edge_outputs.c --------------------------------------------------------------------- */

struct output {
    const char *name;
    int dtype; /* DTYPES or more: none that can be told */
    size_t rank;
    int64_t shape[MAX_RANK];
    const void *data;
};

void put_output(const struct output *output, int64_t sample, size_t index);

/* ---- the system ------------------------------------------------------------------------- */

extern const char system_name[];
extern const char library_suffix[]; /* of file names: ".so", and a version may follow */
extern const char library_prefix[];

int run_main(char **arguments); /* edge_runner.c; words in UTF-8 */
NO_RETURN void leave(int code); /* no destructors: the runtime may be in any state */
/* Standard output becomes ours alone: what libraries print there goes to standard error. */
void take_standard_output(void);
/* A file descriptor, -1 with errno. */
int open_file(const char *path, bool write);
bool exists(const char *path);
bool is_folder(const char *path);
/* Calls take with each name in a folder, in any order. */
void each_name(const char *folder, void (*take)(const char *name));
void *open_library(const char *path);
/* NULL when there is none. */
void *find_symbol(void *library, const char *name);
void set_environment(const char *name, const char *value);
const native *native_path(const char *path); /* never freed */
int64_t now(void); /* ns of a monotonic clock */
int64_t cpu_ns(void); /* of the process */
/* The process's peak resident set in bytes, -1 where the system does not say. */
int64_t peak_bytes(void);
/* Lets the peak start anew from what is resident now. Where the system does not allow it, it stays
 * that of the whole process. */
void reset_peak(void);
int64_t involuntary_switches(void); /* so far, -1 where the system does not say */

/* ---- the runtime ------------------------------------------------------------------------ */

extern const char runtime_library[]; /* its file's name without prefix and suffix */
extern const char *const artifacts[]; /* file names that it reads, up to a NULL */
extern const char default_provider[];

struct job; /* one sample, bound once and run as often as wanted */

void check_settings(void); /* what of options.tsv the backend has not, or sets itself */
void open_runtime(const char *library); /* prints "env" */
void load(const char *artifact); /* prints "load" */
size_t output_count(void);
/* Binds count inputs; their data stay in use. */
struct job *bind_inputs(const struct tensor *tensors, size_t count, char **data);
/* Nanoseconds of one run. The first makes the outputs' memory, later ones write into it. */
int64_t run(struct job *job);
void get_output(struct job *job, size_t index, struct output *output);
void unbind(struct job *job);
void put_profile(void);
void close_runtime(void);

#endif

/* edge_runner: loads a bundle's artifact with ONNX Runtime, runs the golden samples, measures.
 *
 * Prints JSON lines on standard output (runner protocol 1) and nothing else; the last line is
 * "end" or "error", and an error is a non-zero exit. Outputs are hashed and written here and
 * compared on the host.
 *
 * The runtime is opened with dlopen and asked for the lowest API version that has every function
 * used here, so one binary serves every ONNX Runtime from 1.12 on. Linking would bind the
 * symbol version of one release (OrtGetApiBase@VERS_1.32.0).
 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "onnxruntime_c_api.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "samples are little endian");

enum {
    API_VERSION = 12, /* SessionOptionsAppendExecutionProvider */
    MAX_MESSAGE = 8000, /* bytes of an error message: readers bound their lines */
    MAX_RANK = 32,
    MAX_TENSORS = 10000,
    MAX_INDEX_BYTES = 8 << 20,
    BLOCK = 10, /* runs a warm-up median is taken of */
    LINE = 100, /* timed samples printed on one line */
};
#define PROTOCOL INT64_C(1)
#define MAX_TENSOR_BYTES (INT64_C(1) << 31)
#define MAX_NUMBER INT64_C(1000000000000000000) /* 31 years in nanoseconds */

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

static const OrtApi *ort;
static int out; /* our own standard output */
static const char *stage = "arguments"; /* what "error" says; moves on with the work */

/* ---- JSON lines ------------------------------------------------------------------------- */

/* Standard output becomes ours alone: what libraries print there goes to standard error. */
static void take_standard_output(void)
{
    out = dup(STDOUT_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
}

static bool write_all(int file, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t done = write(file, data, size);
        if (done < 0)
            return false;
        data += done;
        size -= done;
    }
    return true;
}

/* Flushed with every line: what was found stays known when the process dies later. */
static void put_char(char c)
{
    static char buffer[4096];
    static size_t used;

    buffer[used++] = c;
    if (c != '\n' && used < sizeof buffer)
        return;
    if (!write_all(out, buffer, used))
        _exit(1); /* nobody reads any more, so there is no line to say it with */
    used = 0;
}

/* Reads one code point and moves on; what is no UTF-8 gives U+FFFD, one byte at a time. */
static uint32_t next_code_point(const unsigned char **text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = *text;
    int length = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : 4;
    uint32_t code = length == 1 ? s[0] : s[0] & (0x7f >> length);
    bool good = length < 4 || s[0] >> 3 == 30;

    for (int i = 1; i < length && good; i++) { /* a NUL is not good, so this stays in the text */
        good = s[i] >> 6 == 2;
        code = code << 6 | (s[i] & 0x3f);
    }
    bool surrogate = code >> 11 == 0x1b;
    good = good && code >= least[length] && code <= 0x10ffff && !surrogate;
    *text += good ? length : 1;
    return good ? code : 0xfffd;
}

static char hex_digit(unsigned number)
{
    return "0123456789abcdef"[number & 15];
}

static void put_escape(uint32_t unit)
{
    put_char('\\');
    put_char('u');
    for (int shift = 12; shift >= 0; shift -= 4)
        put_char(hex_digit(unit >> shift));
}

/* The text between quotes, in ASCII: no reader can take U+2028 for the end of the line. */
static void put_string(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;

    put_char('"');
    while (*s) {
        uint32_t code = next_code_point(&s);
        if (code > 0xffff) {
            put_escape(0xd7c0 + (code >> 10)); /* UTF-16: 0xd800 + ((code - 0x10000) >> 10) */
            code = 0xdc00 | (code & 0x3ff);
        }
        if (code < 0x20 || code > 0x7e || code == '"' || code == '\\')
            put_escape(code);
        else
            put_char(code);
    }
    put_char('"');
}

static void put_number(int64_t number)
{
    char digits[20];
    int count = 0;

    if (number < 0)
        put_char('-');
    do {
        int digit = number % 10;
        digits[count++] = '0' + (digit < 0 ? -digit : digit);
    } while (number /= 10);
    while (count > 0)
        put_char(digits[--count]);
}

/* Prints JSON: ' is a double quote, # an int64_t, $ a string (null when it is NULL). */
static void put(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    for (; *format; format++) {
        if (*format == '#') {
            put_number(va_arg(arguments, int64_t));
        } else if (*format == '$') {
            const char *text = va_arg(arguments, const char *);
            if (text)
                put_string(text);
            else
                put("null");
        } else {
            put_char(*format == '\'' ? '"' : *format);
        }
    }
    va_end(arguments);
}

/* The rest of a list that put() has opened. */
static void put_list(const int64_t *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (i > 0)
            put_char(',');
        put_number(numbers[i]);
    }
    put_char(']');
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    char *message;
    va_list arguments;

    va_start(arguments, format);
    if (vasprintf(&message, format, arguments) < 0)
        message = "out of memory";
    else if (strlen(message) > MAX_MESSAGE)
        message[MAX_MESSAGE] = '\0';
    put("{'event':'error','stage':$,'message':$}\n", stage, message);
    _exit(1); /* no destructors: the runtime may be in any state */
}

__attribute__((format(printf, 1, 2))) static char *text(const char *format, ...)
{
    char *made;
    va_list arguments;

    va_start(arguments, format);
    if (vasprintf(&made, format, arguments) < 0)
        fail("out of memory");
    va_end(arguments);
    return made;
}

static char *join(const char *folder, const char *name)
{
    return text("%s/%s", folder, name);
}

static void check(OrtStatus *status)
{
    if (status)
        fail("%s", ort->GetErrorMessage(status));
}

/* Zeroed, and one element more than asked: calloc(0) may be NULL, and text gets its NUL. */
static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory)
        fail("out of memory: %zu times %zu bytes", count, size);
    return memory;
}

/* ---- arguments -------------------------------------------------------------------------- */

static struct {
    const char *bundle, *output, *library, *profile, *provider, *optimization;
    int64_t warmup, warmup_ns, warmup_limit_ns, iterations, min_ns, max_ns, threads;
    bool check_only;
} options = {
    .provider = "CPUExecutionProvider",
    .optimization = "disabled",
    .warmup = 3,
    .warmup_ns = 500000000,
    .warmup_limit_ns = INT64_C(10000000000),
    .iterations = 100,
    .min_ns = INT64_C(5000000000),
    .max_ns = INT64_C(60000000000),
    .threads = 1,
};

struct option {
    const char *name;
    const char **text; /* or */
    int64_t *number;
    int64_t least, most;
};

static const struct option known[] = {
    {"--bundle", &options.bundle, NULL, 0, 0},
    {"--output", &options.output, NULL, 0, 0},
    {"--library", &options.library, NULL, 0, 0},
    {"--profile", &options.profile, NULL, 0, 0},
    {"--provider", &options.provider, NULL, 0, 0},
    {"--optimization", &options.optimization, NULL, 0, 0},
    {"--warmup", NULL, &options.warmup, 0, MAX_NUMBER},
    {"--warmup-ns", NULL, &options.warmup_ns, 0, MAX_NUMBER},
    {"--warmup-limit-ns", NULL, &options.warmup_limit_ns, 0, MAX_NUMBER},
    {"--iterations", NULL, &options.iterations, 1, MAX_NUMBER},
    {"--min-ns", NULL, &options.min_ns, 0, MAX_NUMBER},
    {"--max-ns", NULL, &options.max_ns, 0, MAX_NUMBER},
    {"--threads", NULL, &options.threads, 1, 1024},
    {NULL, NULL, NULL, 0, 0},
};

/* The number that text is from end to end, -1 when it is none or above the limit. */
static int64_t parse_number(const char *text, int64_t limit)
{
    char *end;
    if (*text < '0' || *text > '9')
        return -1; /* strtoll would take signs and blanks */
    errno = 0;
    long long number = strtoll(text, &end, 10);
    return *end || errno || number > limit ? -1 : number;
}

static void set_option(const char *name, const char *value)
{
    const struct option *option = known;
    while (option->name && strcmp(option->name, name) != 0)
        option++;
    if (!option->name)
        fail("unknown option %s", name);
    if (!value)
        fail("%s needs a value", name);
    if (option->text) {
        *option->text = value;
        return;
    }
    *option->number = parse_number(value, option->most);
    if (*option->number < option->least)
        fail("%s: %s is no number from %" PRId64 " to %" PRId64, name, value, option->least,
             option->most);
}

static GraphOptimizationLevel optimization_level(void)
{
    static const struct {
        char name[9];
        uint8_t level;
    } levels[] = {
        {"disabled", ORT_DISABLE_ALL},
        {"basic", ORT_ENABLE_BASIC},
        {"extended", ORT_ENABLE_EXTENDED},
        {"all", ORT_ENABLE_ALL},
    };
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (strcmp(levels[i].name, options.optimization) == 0)
            return levels[i].level;
    fail("--optimization: %s is none of disabled, basic, extended, all", options.optimization);
}

static void parse_arguments(char **word)
{
    while (*++word) {
        if (strcmp(*word, "--version") == 0) {
            put("{'event':'version','protocol':#,'runner':'c'}\n", PROTOCOL);
            _exit(0);
        }
        if (strcmp(*word, "--check-only") == 0) {
            options.check_only = true;
            continue;
        }
        set_option(*word, word[1]);
        word++;
    }
    optimization_level();
    if (!options.bundle)
        fail("--bundle is missing");
}

/* ---- bundle: untrusted input ------------------------------------------------------------ */

struct tensor { /* a golden input */
    int64_t sample;
    const char *name, *file;
    ONNXTensorElementDataType type;
    size_t rank, bytes;
    int64_t shape[MAX_RANK];
};

static struct tensor *inputs; /* in the order of samples.tsv */
static size_t input_count;
static int64_t sample_count;

static const struct dtype {
    char name[8];
    uint8_t type, bytes;
} dtypes[] = {
    {"float32", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, 4},
    {"float16", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, 2},
    {"float64", ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, 8},
    {"int8", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, 1},
    {"uint8", ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, 1},
    {"int16", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, 2},
    {"uint16", ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, 2},
    {"int32", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, 4},
    {"uint32", ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, 4},
    {"int64", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, 8},
    {"uint64", ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64, 8},
    {"bool", ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, 1},
    {"", 0, 0},
};

/* By name, or by ONNX's type when the name is NULL; NULL when it is none of the twelve. */
static const struct dtype *find_dtype(const char *name, int type)
{
    for (const struct dtype *dtype = dtypes; dtype->bytes; dtype++)
        if (name ? strcmp(dtype->name, name) == 0 : dtype->type == type)
            return dtype;
    return NULL;
}

/* All of a regular file plus a NUL. wanted is its size, or -1 for at most MAX_INDEX_BYTES. */
static char *read_file(const char *path, int64_t wanted)
{
    struct stat facts;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us up */
    if (file < 0 || fstat(file, &facts) != 0)
        fail("cannot read %s: %s", path, strerror(errno));
    int64_t size = facts.st_size;
    if (!S_ISREG(facts.st_mode) || (wanted < 0 && size > MAX_INDEX_BYTES))
        fail("%s is no file of a sane size", path);
    if (wanted >= 0 && size != wanted)
        fail("%s holds %" PRId64 " bytes, its line says %" PRId64, path, size, wanted);

    char *data = allocate(size, 1);
    for (int64_t done = 0; done < size;) {
        ssize_t got = read(file, data + done, size - done);
        if (got <= 0)
            fail("cannot read %s: %s", path, got < 0 ? strerror(errno) : "it shrinks");
        done += got;
    }
    close(file);
    return data;
}

/* "1x3x48", "-" for a scalar. False when it is none, or the tensor is above the limit. */
static bool parse_shape(char *text, const struct dtype *dtype, struct tensor *tensor)
{
    int64_t bytes = dtype->bytes;

    if (strcmp(text, "-") == 0)
        text = NULL;
    while (text) {
        const char *word = strsep(&text, "x");
        int64_t extent = parse_number(word, MAX_TENSOR_BYTES);
        if (extent < 0 || tensor->rank == MAX_RANK)
            return false;
        tensor->shape[tensor->rank++] = extent;
        bytes *= extent; /* 2^31 * 2^31 at most */
        if (bytes > MAX_TENSOR_BYTES)
            return false;
    }
    tensor->bytes = bytes;
    return true;
}

/* A plain name: letters, digits, "_", "-" and ".", not dots alone; so it stays in samples/. */
static bool plain_name(const char *name)
{
    static const char plain[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_-.abcdefghijklmnopqrstuvwxyz";
    return name[strspn(name, ".")] && !name[strspn(name, plain)];
}

/* Lines come sorted by sample, role (inputs first) and index, with no gap. */
static bool follows(int64_t sample, bool output, int64_t index)
{
    static int64_t last_sample = -1, last_index;
    static bool last_output;
    bool same = sample == last_sample && output == last_output;
    bool next = sample == last_sample + 1 || (sample == last_sample && output);

    if (sample < 0 || index != (same ? last_index + 1 : 0) || !(same || next))
        return false;
    last_sample = sample;
    last_output = output;
    last_index = index;
    sample_count = sample + 1;
    return true;
}

/* What is wrong with the line, NULL when nothing is. Outputs are checked and not kept. */
static const char *parse_line(char *line)
{
    char *field[7];
    struct tensor *tensor = &inputs[input_count];

    for (size_t i = 0; i < 7; i++)
        if (!(field[i] = strsep(&line, "\t")))
            return "fewer than 7 fields";
    if (line)
        return "more than 7 fields";
    bool output = strcmp(field[1], "output") == 0;
    const struct dtype *dtype = find_dtype(field[3], 0);
    if (!output && strcmp(field[1], "input") != 0)
        return "a bad role";
    if (!follows(parse_number(field[0], MAX_TENSORS), output, parse_number(field[2], MAX_TENSORS)))
        return "a sample or index out of order";
    tensor->rank = 0; /* an output may have been here */
    if (!dtype || !parse_shape(field[4], dtype, tensor))
        return "a bad dtype or shape";
    if (!plain_name(field[5]))
        return "a bad file name";
    tensor->sample = sample_count - 1;
    tensor->type = dtype->type;
    tensor->file = field[5];
    tensor->name = field[6];
    input_count += !output;
    return NULL;
}

static void read_index(const char *folder)
{
    char *path = join(folder, "samples.tsv");
    char *text = read_file(path, -1);
    size_t lines = 1;

    for (const char *s = text; (s = strchr(s, '\n')); s++)
        lines++;
    if (lines > MAX_TENSORS)
        fail("%s lists more than %d tensors", path, MAX_TENSORS);
    inputs = allocate(lines, sizeof *inputs);
    for (int number = 1; text && *text; number++) {
        const char *wrong = parse_line(strsep(&text, "\n"));
        if (wrong)
            fail("%s:%d: %s", path, number, wrong);
    }
    if (sample_count == 0)
        fail("%s lists no samples", path);
    free(path); /* the text stays: tensors point into it */
}

/* The only model of the bundle, with what of --optimization holds for it. */
static char *find_artifact(void)
{
    char *onnx = join(options.bundle, "model.onnx"), *ready = join(options.bundle, "model.ort");
    bool has_onnx = access(onnx, F_OK) == 0, has_ready = access(ready, F_OK) == 0;

    if (has_onnx == has_ready)
        fail("%s holds %s, not one artifact", options.bundle,
             has_onnx ? "model.onnx and model.ort" : "neither model.onnx nor model.ort");
    free(has_onnx ? ready : onnx);
    if (has_onnx)
        return onnx;
    options.optimization = "disabled"; /* was done when it was made */
    return ready;
}

static char *find_library(void)
{
    static const char wanted[] = "libonnxruntime.so";
    char *folder = join(options.bundle, "runtime"), *found = NULL;
    DIR *listing = opendir(folder);

    for (struct dirent *entry; listing && (entry = readdir(listing));) {
        if (strstr(entry->d_name, wanted) != entry->d_name)
            continue;
        if (found)
            fail("%s holds more than one %s*: choose with --library", folder, wanted);
        found = join(folder, entry->d_name);
    }
    if (!found)
        fail("%s holds no %s*", folder, wanted);
    closedir(listing);
    free(folder);
    return found;
}

/* ---- runtime and session ---------------------------------------------------------------- */

static struct {
    OrtEnv *env;
    OrtSession *handle;
    OrtAllocator *allocator;
    size_t outputs;
    char **output_names;
} session;

static int64_t clock_ns(clockid_t clock)
{
    struct timespec time = {0, 0};
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t now(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* The provider must be compiled into the library; the message lists those that are. */
static void check_provider(void)
{
    char **names, *list = "";
    int count;
    bool found = false;

    check(ort->GetAvailableProviders(&names, &count));
    for (int i = 0; i < count; i++)
        found |= strcmp(names[i], options.provider) == 0;
    for (int i = 0; !found && i < count; i++)
        list = text("%s %s", list, names[i]);
    if (!found)
        fail("the runtime has no %s, it has:%s", options.provider, list);
    check(ort->ReleaseAvailableProviders(names, count));
}

static void open_runtime(void)
{
    char *library = options.library ? text("%s", options.library) : find_library();
    /* From 1.29 the runtime reports its use to its maker unless this is set before it is loaded. */
    setenv("ORT_DISABLE_TELEMETRY", "1", 1);
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fail("cannot open the runtime: %s", dlerror());
    const OrtApiBase *(*base)(void) = (const OrtApiBase *(*)(void))dlsym(handle, "OrtGetApiBase");
    if (!base)
        fail("%s is no ONNX Runtime: %s", library, dlerror());
    ort = base()->GetApi(API_VERSION);
    if (!ort)
        fail("%s is older than 1.%d", library, API_VERSION);
    free(library);
    check_provider();

    put("{'event':'env','protocol':#,'runner':'c','runtime':'onnxruntime','version':$,", PROTOCOL,
        base()->GetVersionString());
    put("'arch':'" ARCH "','os':'linux','threads':#,'provider':$,'optimization':$}\n",
        options.threads, options.provider, options.optimization);
}

/* Releases disagree on names: 1.21 knows "XNNPACK" and "CoreML" only, later ones the whole name
 * too. So the name, its stem and the stem in capitals are tried in turn. */
static void append_by_name(OrtSessionOptions *target)
{
    char *name = text("%s", options.provider);
    for (int attempt = 0;; attempt++) {
        OrtStatus *status =
            ort->SessionOptionsAppendExecutionProvider(target, name, NULL, NULL, 0);
        if (!status)
            break;
        if (attempt == 2)
            check(status);
        ort->ReleaseStatus(status);
        char *suffix = strstr(name, "ExecutionProvider");
        if (suffix)
            *suffix = '\0';
        for (char *s = name; attempt == 1 && *s; s++)
            *s &= *s >= 'a' && *s <= 'z' ? ~0x20 : ~0;
    }
    free(name);
}

static void append_provider(OrtSessionOptions *target)
{
    if (strcmp(options.provider, "CPUExecutionProvider") == 0)
        return;
    check(ort->AddSessionConfigEntry(target, "session.disable_cpu_ep_fallback", "1"));
    if (strcmp(options.provider, "CUDAExecutionProvider") == 0) {
        OrtCUDAProviderOptionsV2 *cuda;
        check(ort->CreateCUDAProviderOptions(&cuda));
        check(ort->SessionOptionsAppendExecutionProvider_CUDA_V2(target, cuda));
        ort->ReleaseCUDAProviderOptions(cuda);
    } else if (strcmp(options.provider, "TensorrtExecutionProvider") == 0) {
        OrtTensorRTProviderOptionsV2 *tensorrt;
        check(ort->CreateTensorRTProviderOptions(&tensorrt));
        check(ort->SessionOptionsAppendExecutionProvider_TensorRT_V2(target, tensorrt));
        ort->ReleaseTensorRTProviderOptions(tensorrt);
    } else {
        append_by_name(target);
    }
}

static OrtSessionOptions *session_options(bool is_onnx)
{
    OrtSessionOptions *made;
    check(ort->CreateSessionOptions(&made));
    check(ort->SetIntraOpNumThreads(made, (int)options.threads));
    check(ort->SetInterOpNumThreads(made, 1));
    check(ort->SetSessionExecutionMode(made, ORT_SEQUENTIAL));
    if (is_onnx)
        check(ort->SetSessionGraphOptimizationLevel(made, optimization_level()));
    if (options.profile)
        check(ort->EnableProfiling(made, options.profile));
    append_provider(made);
    return made;
}

static void load(const char *artifact)
{
    check(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "edge", &session.env));
    OrtSessionOptions *made = session_options(strcmp(strrchr(artifact, '.'), ".onnx") == 0);
    int64_t start = now();
    OrtStatus *status = ort->CreateSession(session.env, artifact, made, &session.handle);
    int64_t ns = now() - start;
    check(status);
    ort->ReleaseSessionOptions(made);
    put("{'event':'load','ns':#}\n", ns);

    check(ort->GetAllocatorWithDefaultOptions(&session.allocator));
    check(ort->SessionGetOutputCount(session.handle, &session.outputs));
    session.output_names = allocate(session.outputs, sizeof *session.output_names);
    for (size_t i = 0; i < session.outputs; i++)
        check(ort->SessionGetOutputName(session.handle, i, session.allocator,
                                        &session.output_names[i]));
}

/* ---- runs ------------------------------------------------------------------------------- */

struct job { /* one sample, bound once and run as often as wanted */
    size_t count;
    const char **names;
    OrtValue **inputs, **outputs;
    char **data; /* the inputs' memory */
};

static void prepare(struct job *job, const char *folder, int64_t sample)
{
    const struct tensor *tensor = inputs, *end = inputs + input_count;
    OrtMemoryInfo *memory;

    while (tensor < end && tensor->sample < sample)
        tensor++;
    for (job->count = 0; tensor + job->count < end && tensor[job->count].sample == sample;)
        job->count++;
    job->names = allocate(job->count, sizeof *job->names);
    job->inputs = allocate(job->count, sizeof *job->inputs);
    job->data = allocate(job->count, sizeof *job->data);
    job->outputs = allocate(session.outputs, sizeof *job->outputs);
    check(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    for (size_t i = 0; i < job->count; i++, tensor++) {
        char *path = join(folder, tensor->file);
        stage = "bundle";
        job->names[i] = tensor->name;
        job->data[i] = read_file(path, tensor->bytes);
        stage = "run";
        check(ort->CreateTensorWithDataAsOrtValue(memory, job->data[i], tensor->bytes,
                                                  tensor->shape, tensor->rank, tensor->type,
                                                  &job->inputs[i]));
        free(path);
    }
    ort->ReleaseMemoryInfo(memory);
}

static void dispose(struct job *job)
{
    for (size_t i = 0; i < job->count; i++) {
        ort->ReleaseValue(job->inputs[i]);
        free(job->data[i]);
    }
    for (size_t i = 0; i < session.outputs; i++)
        ort->ReleaseValue(job->outputs[i]);
    free(job->names);
    free(job->inputs);
    free(job->data);
    free(job->outputs);
}

/* Nanoseconds of one run. The first makes the output values, later ones write into them. */
static int64_t run(struct job *job)
{
    int64_t start = now();
    OrtStatus *status = ort->Run(session.handle, NULL, job->names,
                                 (const OrtValue *const *)job->inputs, job->count,
                                 (const char *const *)session.output_names, session.outputs,
                                 job->outputs);
    int64_t ns = now() - start;
    check(status);
    return ns;
}

/* ---- outputs ---------------------------------------------------------------------------- */

static uint32_t rotate(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

/* SHA-256 (FIPS 180-4), one block of 64 bytes. */
static void sha256_block(uint32_t state[8], const uint8_t *block)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2,
    };
    uint32_t w[64], v[8];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | block[4 * i + 1] << 16 | block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t one = v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) +
                       ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
        uint32_t two = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) +
                       ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

static void sha256(const uint8_t *data, size_t size, char hex[65])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t last[128] = {0};
    size_t rest = size % 64, padded = rest < 56 ? 64 : 128;
    uint64_t bits = (uint64_t)size * 8;

    for (size_t done = 0; done < size - rest; done += 64)
        sha256_block(state, data + done);
    for (size_t i = 0; i < rest; i++)
        last[i] = data[size - rest + i];
    last[rest] = 0x80;
    for (int i = 1; i <= 8; i++, bits >>= 8)
        last[padded - i] = (uint8_t)bits;
    for (size_t done = 0; done < padded; done += 64)
        sha256_block(state, last + done);
    for (int i = 0; i < 64; i++)
        hex[i] = hex_digit(state[i / 8] >> (28 - i % 8 * 4));
    hex[64] = '\0';
}

/* Writes into --output and returns the file's name, NULL without the option. */
static char *write_output(int64_t sample, size_t index, const void *data, size_t bytes)
{
    if (!options.output)
        return NULL;
    char *name = text("%03" PRId64 ".output.%zu.bin", sample, index);
    char *path = join(options.output, name);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0 || !write_all(file, data, bytes) || close(file) != 0)
        fail("cannot write %s: %s", path, strerror(errno));
    free(path);
    return name;
}

static void put_output(OrtValue *value, int64_t sample, size_t index)
{
    const char *name = session.output_names[index];
    enum ONNXType kind;
    ONNXTensorElementDataType type;
    OrtTensorTypeAndShapeInfo *info;
    size_t elements, rank;
    int64_t shape[MAX_RANK];
    void *data;
    char hash[65];

    check(ort->GetValueType(value, &kind));
    if (kind != ONNX_TYPE_TENSOR)
        fail("the output %s is no tensor", name);
    check(ort->GetTensorTypeAndShape(value, &info));
    check(ort->GetTensorElementType(info, &type));
    check(ort->GetDimensionsCount(info, &rank));
    const struct dtype *dtype = find_dtype(NULL, type);
    if (!dtype || rank > MAX_RANK)
        fail("the output %s has element type %d and rank %zu, which cannot be told", name, type,
             rank);
    check(ort->GetDimensions(info, shape, rank));
    check(ort->GetTensorShapeElementCount(info, &elements));
    ort->ReleaseTensorTypeAndShapeInfo(info);
    check(ort->GetTensorMutableData(value, &data));

    size_t bytes = elements * dtype->bytes;
    sha256(data, bytes, hash);
    char *file = write_output(sample, index, data, bytes);
    put("{'event':'output','sample':#,'index':#,'name':$,'dtype':$,'shape':[", sample,
        (int64_t)index, name, dtype->name);
    put_list(shape, rank);
    put(",'file':$,'sha256':$}\n", file, hash);
    free(file);
}

static void put_outputs(struct job *job, int64_t sample)
{
    stage = "output";
    for (size_t i = 0; i < session.outputs; i++)
        put_output(job->outputs[i], sample, i);
    stage = "run";
}

/* ---- measuring -------------------------------------------------------------------------- */

/* The process's peak resident set in bytes, -1 where /proc does not say. Not ru_maxrss: that
 * starts from the parent's. */
static int64_t peak_bytes(void)
{
    static const char key[] = "VmHWM:";
    char status[4096];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t got = read(file, status, sizeof status - 1);
    close(file);
    status[got < 0 ? 0 : got] = '\0';
    const char *found = strstr(status, key);
    return found ? strtoll(found + sizeof key - 1, NULL, 10) * 1024 : -1;
}

/* Lets the peak start anew from what is resident now. Where the kernel does not allow it, it stays
 * that of the whole process. */
static void reset_peak(void)
{
    int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return;
    write_all(file, "5", 1);
    close(file);
}

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

static int64_t involuntary_switches(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : -1;
}

static void time_runs(struct job *job, struct timing *timing)
{
    int64_t room = options.iterations < 4096 ? options.iterations : 4096;
    timing->ns = allocate(room, sizeof *timing->ns);
    timing->switches = involuntary_switches();
    timing->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
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
    timing->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - timing->cpu_ns;
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

static void put_profile(void)
{
    char *file;
    stage = "output";
    check(ort->SessionEndProfiling(session.handle, session.allocator, &file));
    put("{'event':'profile','file':$}\n", file);
    check(ort->AllocatorFree(session.allocator, file));
}

/* Sample 0 stays bound in job for the timed runs; the others come and go. */
static void run_samples(struct job *job, const char *folder)
{
    stage = "run";
    prepare(job, folder, 0);
    int64_t ns = run(job);
    put("{'event':'first','ns':#}\n", ns);
    put_outputs(job, 0);
    for (int64_t sample = 1; sample < sample_count; sample++) {
        struct job other;
        prepare(&other, folder, sample);
        run(&other);
        put_outputs(&other, sample);
        dispose(&other);
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

int main(int argc, char **argv)
{
    (void)argc;
    struct job job;
    take_standard_output();
    parse_arguments(argv);

    stage = "bundle";
    char *artifact = find_artifact();
    char *folder = join(options.bundle, "samples");
    read_index(folder);

    stage = "runtime";
    open_runtime();

    stage = "load";
    load(artifact);
    int64_t load_peak = peak_bytes();
    reset_peak();

    run_samples(&job, folder);
    measure(&job, load_peak);

    dispose(&job);
    ort->ReleaseSession(session.handle);
    ort->ReleaseEnv(session.env);
    free(artifact);
    free(folder);
    return 0;
}

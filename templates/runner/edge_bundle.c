/* What a bundle holds: untrusted input. */
#define _FILE_OFFSET_BITS 64

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "edge_runner.h"

enum {
    MAX_INDEX_BYTES = 8 << 20,
    MAX_OPTIONS = 200,
    MAX_DECIMALS = 20,
};

#define DIGITS "0123456789"
#define NAME "ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"

struct tensor *inputs;
size_t input_count;
int64_t sample_count, golden_count;
const char **golden_names;
struct settings provider_options, session_entries;
bool cuda_graph, all_nodes = true;

const struct dtype dtypes[DTYPES] = {
    {"float32", 4}, {"float16", 2}, {"float64", 8}, {"int8", 1},   {"uint8", 1},  {"int16", 2},
    {"uint16", 2},  {"int32", 4},   {"uint32", 4},  {"int64", 8},  {"uint64", 8}, {"bool", 1},
};

/* DTYPES when it is none of the twelve. */
static int find_dtype(const char *name)
{
    int dtype = 0;
    while (dtype < DTYPES && strcmp(dtypes[dtype].name, name) != 0)
        dtype++;
    return dtype;
}

char *read_file(const char *path, int64_t wanted)
{
    struct stat facts;
    int file = open_file(path, false);
    if (file < 0 || fstat(file, &facts) != 0)
        fail("cannot read %s: %s", path, strerror(errno));
    int64_t size = facts.st_size;
    if (!S_ISREG(facts.st_mode) || (wanted < 0 && size > MAX_INDEX_BYTES))
        fail("%s is no file of a sane size", path);
    if (wanted >= 0 && size != wanted)
        fail("%s holds %" PRId64 " bytes, its line says %" PRId64, path, size, wanted);

    char *data = allocate(size, 1);
    for (int64_t done = 0; done < size;) {
        int64_t rest = size - done;
        ssize_t got = read(file, data + done, rest < 1 << 30 ? rest : 1 << 30);
        if (got <= 0)
            fail("cannot read %s: %s", path, got < 0 ? strerror(errno) : "it shrinks");
        done += got;
    }
    close(file);
    if (wanted < 0 && memchr(data, '\0', size))
        fail("%s holds a NUL", path); /* what is behind it would not be read */
    return data;
}

/* strsep, which Windows has not: cuts the text at the separator and moves behind it. */
static char *next_field(char **text, char separator)
{
    char *field = *text, *end = field ? strchr(field, separator) : NULL;
    if (end)
        *end++ = '\0';
    *text = end;
    return field;
}

/* "1x3x48", "-" for a scalar. False when it is none, or the tensor is above the limit. */
static bool parse_shape(char *text, struct tensor *tensor)
{
    int64_t bytes = dtypes[tensor->dtype].bytes;

    if (strcmp(text, "-") == 0)
        text = NULL;
    while (text) {
        int64_t extent = parse_number(next_field(&text, 'x'), MAX_TENSOR_BYTES);
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
    return name[strspn(name, ".")] && !name[strspn(name, NAME "-." DIGITS)];
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

/* What is wrong with the line, NULL when nothing is. Of outputs only names are kept. */
static const char *parse_line(char *line)
{
    char *field[7];
    struct tensor *tensor = &inputs[input_count];

    for (size_t i = 0; i < 7; i++)
        if (!(field[i] = next_field(&line, '\t')))
            return "fewer than 7 fields";
    if (line)
        return "more than 7 fields";
    bool output = strcmp(field[1], "output") == 0;
    if (!output && strcmp(field[1], "input") != 0)
        return "a bad role";
    if (!follows(parse_number(field[0], MAX_TENSORS), output, parse_number(field[2], MAX_TENSORS)))
        return "a sample or index out of order";
    tensor->rank = 0; /* an output may have been here */
    tensor->dtype = find_dtype(field[3]);
    if (tensor->dtype == DTYPES || !parse_shape(field[4], tensor))
        return "a bad dtype or shape";
    if (!plain_name(field[5]))
        return "a bad file name";
    tensor->sample = sample_count - 1;
    tensor->file = field[5];
    tensor->name = field[6];
    input_count += !output;
    if (output && sample_count == 1)
        golden_names[golden_count++] = field[6];
    return NULL;
}

static size_t count_lines(const char *text)
{
    size_t lines = 1;
    while ((text = strchr(text, '\n'))) {
        text++;
        lines++;
    }
    return lines;
}

void read_index(const char *folder)
{
    char *path = join(folder, "samples.tsv");
    char *text = read_file(path, -1);
    size_t lines = count_lines(text);

    if (lines > MAX_TENSORS + 1) /* the last one may be empty */
        fail("%s lists more than %d tensors", path, MAX_TENSORS);
    inputs = allocate(lines, sizeof *inputs);
    golden_names = allocate(lines, sizeof *golden_names);
    for (int number = 1; text && *text; number++) {
        const char *wrong = parse_line(next_field(&text, '\n'));
        if (wrong)
            fail("%s:%d: %s", path, number, wrong);
    }
    if (sample_count == 0)
        fail("%s lists no samples", path);
    free(path); /* the text stays: tensors point into it */
}

static bool made_of(const char *text, const char *characters, size_t least, size_t most)
{
    size_t length = strlen(text);
    return strspn(text, characters) == length && length >= least && length <= most;
}

/* 0, 1, or a decimal from 0 to 1. */
static bool is_share(const char *value)
{
    const char *digits = *value == '0' ? DIGITS : "0";

    if (*value != '0' && *value != '1')
        return false;
    return !value[1] || (value[1] == '.' && made_of(value + 2, digits, 1, MAX_DECIMALS));
}

/* False for a name that is there already, or is none. */
static bool add_setting(struct settings *settings, const char *name, const char *value)
{
    if (!settings->keys) {
        settings->keys = allocate(MAX_OPTIONS, sizeof *settings->keys);
        settings->values = allocate(MAX_OPTIONS, sizeof *settings->values);
    }
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->keys[i], name) == 0)
            return false;
    settings->keys[settings->count] = name;
    settings->values[settings->count++] = value;
    return made_of(name, NAME "." DIGITS, 1, 100) && !strchr("_." DIGITS, *name);
}

/* False for a key that runners do not know, and for a value that it cannot have. */
static bool take_option(char *key, const char *value)
{
    static struct settings own;
    char *name = key;
    const char *group = next_field(&name, '.');

    if (!name)
        return false;
    if (strcmp(group, "provider") == 0)
        return add_setting(&provider_options, name, value);
    if (strcmp(group, "session") == 0)
        return add_setting(&session_entries, name, value);
    if (strcmp(group, "runner") != 0 || !add_setting(&own, name, value))
        return false;
    if (strcmp(name, "engine_key") == 0) /* of what other runners keep on the device */
        return made_of(value, DIGITS "abcdef", 16, 128);
    if (strcmp(name, "cuda_graph") == 0) {
        cuda_graph = *value == '1';
        return made_of(value, "01", 1, 1);
    }
    all_nodes = *value == '1'; /* 0.95, 1, 1.0 */
    return strcmp(name, "least_nodes") == 0 && is_share(value);
}

void read_options(void)
{
    char *path = join(options.bundle, "runner/options.tsv");
    char *lines = exists(path) ? read_file(path, -1) : NULL;

    for (int number = 1; lines && *lines; number++) {
        char *value = next_field(&lines, '\n'), *key = next_field(&value, '\t');
        if (!value || strpbrk(value, "\t\r") || number > MAX_OPTIONS)
            fail("%s:%d: no KEY<TAB>VALUE", path, number);
        char *said = text("%s = %s", key, value);
        if (!take_option(key, value))
            fail("%s:%d: unknown option %s", path, number, said);
        free(said);
    }
    check_settings();
    free(path); /* the lines stay: settings point into it */
}

char *find_artifact(void)
{
    char *found = NULL, *names = "", *wanted = "";

    for (const char *const *name = artifacts; *name; name++) {
        char *path = join(options.bundle, *name);
        wanted = text("%s%s%s", wanted, *wanted ? " nor " : "", *name);
        if (!exists(path)) {
            free(path);
            continue;
        }
        names = text("%s%s%s", names, *names ? " and " : "", *name);
        if (found)
            fail("%s holds %s, not one artifact", options.bundle, names);
        found = path;
    }
    if (!found)
        fail("%s holds %s %s, not one artifact", options.bundle, artifacts[1] ? "neither" : "no",
             wanted);
    if (strcmp(strrchr(found, '.'), ".onnx") != 0)
        options.optimization = "disabled"; /* was done when it was made */
    return found;
}

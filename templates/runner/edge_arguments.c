/* The command line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "edge_runner.h"

#define MAX_NUMBER INT64_C(1000000000000000000) /* 31 years in nanoseconds */

struct options options = {
    .provider = default_provider,
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
    {"--cache", &options.cache, NULL, 0, 0},
    {"--warmup", NULL, &options.warmup, 0, MAX_NUMBER},
    {"--warmup-ns", NULL, &options.warmup_ns, 0, MAX_NUMBER},
    {"--warmup-limit-ns", NULL, &options.warmup_limit_ns, 0, MAX_NUMBER},
    {"--iterations", NULL, &options.iterations, 1, MAX_NUMBER},
    {"--min-ns", NULL, &options.min_ns, 0, MAX_NUMBER},
    {"--max-ns", NULL, &options.max_ns, 0, MAX_NUMBER},
    {"--threads", NULL, &options.threads, 1, 1024},
    {NULL, NULL, NULL, 0, 0},
};

int64_t parse_number(const char *text, int64_t limit)
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

int optimization_level(void)
{
    static const char levels[][9] = {"disabled", "basic", "extended", "all"};
    for (int i = 0; i < 4; i++)
        if (strcmp(levels[i], options.optimization) == 0)
            return i;
    fail("--optimization: %s is none of disabled, basic, extended, all", options.optimization);
}

void parse_arguments(char **word)
{
    while (*++word) {
        if (strcmp(*word, "--version") == 0) {
            put("{'event':'version','protocol':#,'runner':'c'}\n", PROTOCOL);
            leave(0);
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
    if (options.cache && !is_folder(options.cache))
        fail("--cache %s is no folder", options.cache);
}

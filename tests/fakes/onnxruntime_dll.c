/* onnxruntime.dll as far as edge_runner calls it before a session is there: says what it was asked
 * for in the failure of CreateSession. MinGW's, for Wine. */
#include <specstrings.h>
#include <stdio.h>
#include <string.h>
#ifndef _Return_type_success_
#define _Return_type_success_(condition)
#endif
#ifndef _Frees_ptr_opt_
#define _Frees_ptr_opt_
#endif
#include "onnxruntime_c_api.h"

static char said[4000];
static char *providers[] = {"DmlExecutionProvider", "CPUExecutionProvider"};

static void say(const char *what, const char *more)
{
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s %s; ", what, more);
}

static const char *ORT_API_CALL message(const OrtStatus *status)
{
    return (const char *)status;
}

static void ORT_API_CALL release(OrtStatus *status)
{
    (void)status;
}

static OrtStatus *ORT_API_CALL get_providers(char ***out, int *count)
{
    *out = providers;
    *count = 2;
    return NULL;
}

static OrtStatus *ORT_API_CALL free_providers(char **names, int count)
{
    (void)names, (void)count;
    return NULL;
}

static OrtStatus *ORT_API_CALL create_env(OrtLoggingLevel level, const char *id, OrtEnv **out)
{
    (void)level, (void)id;
    *out = (OrtEnv *)said;
    return NULL;
}

static OrtStatus *ORT_API_CALL create_options(OrtSessionOptions **out)
{
    *out = (OrtSessionOptions *)said;
    return NULL;
}

static OrtStatus *ORT_API_CALL set_threads(OrtSessionOptions *options, int threads)
{
    (void)options, (void)threads;
    return NULL;
}

static OrtStatus *ORT_API_CALL set_mode(OrtSessionOptions *options, ExecutionMode mode)
{
    (void)options;
    say("mode", mode == ORT_SEQUENTIAL ? "sequential" : "parallel");
    return NULL;
}

static OrtStatus *ORT_API_CALL set_level(OrtSessionOptions *options, GraphOptimizationLevel level)
{
    (void)options, (void)level;
    return NULL;
}

static OrtStatus *ORT_API_CALL no_pattern(OrtSessionOptions *options)
{
    (void)options;
    say("no memory pattern", "");
    return NULL;
}

static OrtStatus *ORT_API_CALL add_entry(OrtSessionOptions *options, const char *key,
                                         const char *value)
{
    (void)options;
    say(key, value);
    return NULL;
}

/* As 1.21, which knows the short name alone. */
static OrtStatus *ORT_API_CALL append(OrtSessionOptions *options, const char *name,
                                      const char *const *keys, const char *const *values,
                                      size_t count)
{
    (void)options;
    if (strcmp(name, "DML") != 0)
        return (OrtStatus *)"unknown provider";
    say("append", name);
    for (size_t i = 0; i < count; i++)
        say(keys[i], values[i]);
    return NULL;
}

static OrtStatus *ORT_API_CALL create_session(const OrtEnv *env, const ORTCHAR_T *path,
                                              const OrtSessionOptions *options, OrtSession **out)
{
    char name[32];
    size_t length = wcslen(path);
    (void)env, (void)options, (void)out;
    snprintf(name, sizeof name, "%ls", path + (length > 10 ? length - 10 : 0));
    say("session", name);
    return (OrtStatus *)said;
}

static const OrtApi *ORT_API_CALL get_api(uint32_t version)
{
    static OrtApi api;
    api.GetErrorMessage = message;
    api.ReleaseStatus = release;
    api.GetAvailableProviders = get_providers;
    api.ReleaseAvailableProviders = free_providers;
    api.CreateEnv = create_env;
    api.CreateSessionOptions = create_options;
    api.SetIntraOpNumThreads = set_threads;
    api.SetInterOpNumThreads = set_threads;
    api.SetSessionExecutionMode = set_mode;
    api.SetSessionGraphOptimizationLevel = set_level;
    api.DisableMemPattern = no_pattern;
    api.AddSessionConfigEntry = add_entry;
    api.SessionOptionsAppendExecutionProvider = append;
    api.CreateSession = create_session;
    return version <= 12 ? &api : NULL;
}

static const char *ORT_API_CALL version(void)
{
    return "1.12.0";
}

__declspec(dllexport) const OrtApiBase *ORT_API_CALL OrtGetApiBase(void)
{
    static const OrtApiBase base = {get_api, version};
    return &base;
}

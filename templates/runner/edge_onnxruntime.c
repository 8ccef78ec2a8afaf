/* The runtime: ONNX Runtime.
 *
 * It is opened and asked for the lowest API version that has every function used here, so one
 * binary serves every ONNX Runtime from 1.12 on. Linking would bind the symbol version of one
 * release (OrtGetApiBase@VERS_1.32.0).
 */
#include <stdlib.h>
#include <string.h>

#include "edge_runner.h"

#ifdef _WIN32
#include <specstrings.h>
#ifndef _Return_type_success_ /* MinGW's lacks what the header writes for Windows' analyser */
#define _Return_type_success_(condition)
#endif
#ifndef _Frees_ptr_opt_
#define _Frees_ptr_opt_
#endif
#endif
#include "onnxruntime_c_api.h"

enum { API_VERSION = 12 }; /* SessionOptionsAppendExecutionProvider */

const char runtime_library[] = "onnxruntime";
const char *const artifacts[] = {"model.onnx", "model.ort", NULL};
const char default_provider[] = "CPUExecutionProvider";

static const uint8_t types[DTYPES] = {
    [DTYPE_FLOAT32] = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
    [DTYPE_FLOAT16] = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
    [DTYPE_FLOAT64] = ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
    [DTYPE_INT8] = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
    [DTYPE_UINT8] = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
    [DTYPE_INT16] = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
    [DTYPE_UINT16] = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
    [DTYPE_INT32] = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
    [DTYPE_UINT32] = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
    [DTYPE_INT64] = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
    [DTYPE_UINT64] = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
    [DTYPE_BOOL] = ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
};

struct job {
    size_t count;
    const char **names;
    OrtValue **inputs, **outputs;
};

static const OrtApi *ort;

static struct {
    OrtEnv *env;
    OrtSession *handle;
    OrtAllocator *allocator;
    size_t outputs;
    char **output_names;
} session;

static void check(OrtStatus *status)
{
    if (status)
        fail("%s", ort->GetErrorMessage(status));
}

static bool wants(const char *provider)
{
    return strcmp(options.provider, provider) == 0;
}

void check_settings(void)
{
    /* TensorRT's file names are equal for models with other weights (onnxruntime #6455, #32254). */
    static const char *const refused[] = {"trt_engine_cache", "trt_timing_cache", "enable_cuda_graph",
                                          "trt_cuda_graph"};
    for (size_t i = 0; i < provider_options.count; i++)
        for (size_t j = 0; j < sizeof refused / sizeof *refused; j++)
            if (strstr(provider_options.keys[i], refused[j]) == provider_options.keys[i])
                fail("the provider's option %s is not the bundle's to set",
                     provider_options.keys[i]);
    if (wants("OpenVINOExecutionProvider")) /* it takes the CPU where it has no device */
        fail("%s: only the Python runner checks its device and sets its threads", options.provider);
    if (cuda_graph)
        fail("runner.cuda_graph: only the Python runner captures CUDA graphs");
}

/* The provider must be compiled into the library; the message lists those that are. */
static void check_provider(void)
{
    char **names, *list = "";
    int count;
    bool found = false;

    check(ort->GetAvailableProviders(&names, &count));
    for (int i = 0; i < count; i++)
        found |= wants(names[i]);
    for (int i = 0; !found && i < count; i++)
        list = text("%s %s", list, names[i]);
    if (!found)
        fail("the runtime has no %s, it has:%s", options.provider, list);
    check(ort->ReleaseAvailableProviders(names, count));
}

void open_runtime(const char *library)
{
    /* From 1.29 the runtime reports its use to its maker unless this is set before it is loaded. */
    set_environment("ORT_DISABLE_TELEMETRY", "1");
    void *handle = open_library(library);
    const OrtApiBase *(*base)(void) = find_symbol(handle, "OrtGetApiBase");
    if (!base)
        fail("%s is no ONNX Runtime: it has no OrtGetApiBase", library);
    ort = base()->GetApi(API_VERSION);
    if (!ort)
        fail("%s is older than 1.%d", library, API_VERSION);
    check_provider();

    put("{'event':'env','protocol':#,'runner':'c','runtime':'onnxruntime','version':$,", PROTOCOL,
        base()->GetVersionString());
    put("'arch':'" ARCH "','os':$,'threads':#,'provider':$,'optimization':$}\n", system_name,
        options.threads, options.provider, options.optimization);
}

/* Releases disagree on names: 1.21 knows "XNNPACK", "CoreML" and "DML" only, later ones the whole
 * name too. So the name, its stem and the stem in capitals are tried in turn. */
static void append_by_name(OrtSessionOptions *target)
{
    char *name = text("%s", options.provider);
    for (int attempt = 0;; attempt++) {
        OrtStatus *status = ort->SessionOptionsAppendExecutionProvider(
            target, name, provider_options.keys, provider_options.values, provider_options.count);
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

static void append_cuda(OrtSessionOptions *target)
{
    OrtCUDAProviderOptionsV2 *cuda;
    check(ort->CreateCUDAProviderOptions(&cuda));
    check(ort->UpdateCUDAProviderOptions(cuda, provider_options.keys, provider_options.values,
                                         provider_options.count));
    check(ort->SessionOptionsAppendExecutionProvider_CUDA_V2(target, cuda));
    ort->ReleaseCUDAProviderOptions(cuda);
}

static void append_tensorrt(OrtSessionOptions *target)
{
    OrtTensorRTProviderOptionsV2 *tensorrt;
    check(ort->CreateTensorRTProviderOptions(&tensorrt));
    check(ort->UpdateTensorRTProviderOptions(tensorrt, provider_options.keys,
                                             provider_options.values, provider_options.count));
    check(ort->SessionOptionsAppendExecutionProvider_TensorRT_V2(target, tensorrt));
    ort->ReleaseTensorRTProviderOptions(tensorrt);
}

static void append_provider(OrtSessionOptions *target)
{
    if (wants(default_provider))
        return;
    if (all_nodes)
        check(ort->AddSessionConfigEntry(target, "session.disable_cpu_ep_fallback", "1"));
    if (wants("DmlExecutionProvider"))
        check(ort->DisableMemPattern(target)); /* its documentation wants that */
    if (wants("CUDAExecutionProvider"))
        append_cuda(target);
    else if (wants("TensorrtExecutionProvider"))
        append_tensorrt(target);
    else
        append_by_name(target);
}

static OrtSessionOptions *session_options(bool is_onnx)
{
    static const uint8_t levels[] = {ORT_DISABLE_ALL, ORT_ENABLE_BASIC, ORT_ENABLE_EXTENDED,
                                     ORT_ENABLE_ALL};
    OrtSessionOptions *made;
    check(ort->CreateSessionOptions(&made));
    check(ort->SetIntraOpNumThreads(made, (int)options.threads));
    check(ort->SetInterOpNumThreads(made, 1));
    check(ort->SetSessionExecutionMode(made, ORT_SEQUENTIAL));
    if (is_onnx)
        check(ort->SetSessionGraphOptimizationLevel(made, levels[optimization_level()]));
    if (options.profile)
        check(ort->EnableProfiling(made, native_path(options.profile)));
    for (size_t i = 0; i < session_entries.count; i++)
        check(ort->AddSessionConfigEntry(made, session_entries.keys[i], session_entries.values[i]));
    append_provider(made);
    return made;
}

void load(const char *artifact)
{
    check(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "edge", &session.env));
    OrtSessionOptions *made = session_options(strcmp(strrchr(artifact, '.'), ".onnx") == 0);
    const native *path = native_path(artifact);
    int64_t start = now();
    OrtStatus *status = ort->CreateSession(session.env, path, made, &session.handle);
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

size_t output_count(void)
{
    return session.outputs;
}

struct job *bind_inputs(const struct tensor *tensor, size_t count, char **data)
{
    struct job *job = allocate(1, sizeof *job);
    OrtMemoryInfo *memory;

    job->count = count;
    job->names = allocate(count, sizeof *job->names);
    job->inputs = allocate(count, sizeof *job->inputs);
    job->outputs = allocate(session.outputs, sizeof *job->outputs);
    check(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    for (size_t i = 0; i < count; i++, tensor++) {
        job->names[i] = tensor->name;
        check(ort->CreateTensorWithDataAsOrtValue(memory, data[i], tensor->bytes, tensor->shape,
                                                  tensor->rank, types[tensor->dtype],
                                                  &job->inputs[i]));
    }
    ort->ReleaseMemoryInfo(memory);
    return job;
}

void unbind(struct job *job)
{
    for (size_t i = 0; i < job->count; i++)
        ort->ReleaseValue(job->inputs[i]);
    for (size_t i = 0; i < session.outputs; i++)
        ort->ReleaseValue(job->outputs[i]);
    free(job->names);
    free(job->inputs);
    free(job->outputs);
    free(job);
}

int64_t run(struct job *job)
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

static int find_type(ONNXTensorElementDataType type)
{
    int dtype = 0;
    while (dtype < DTYPES && types[dtype] != (int)type)
        dtype++;
    return dtype;
}

void get_output(struct job *job, size_t index, struct output *output)
{
    OrtValue *value = job->outputs[index];
    enum ONNXType kind;
    ONNXTensorElementDataType type;
    OrtTensorTypeAndShapeInfo *info;
    void *data;

    output->name = session.output_names[index];
    check(ort->GetValueType(value, &kind));
    if (kind != ONNX_TYPE_TENSOR)
        fail("the output %s is no tensor", output->name);
    check(ort->GetTensorTypeAndShape(value, &info));
    check(ort->GetTensorElementType(info, &type));
    check(ort->GetDimensionsCount(info, &output->rank));
    output->dtype = find_type(type);
    if (output->dtype == DTYPES || output->rank > MAX_RANK)
        fail("the output %s has element type %d and rank %zu, which cannot be told", output->name,
             type, output->rank);
    check(ort->GetDimensions(info, output->shape, output->rank));
    ort->ReleaseTensorTypeAndShapeInfo(info);
    check(ort->GetTensorMutableData(value, &data));
    output->data = data;
}

void put_profile(void)
{
    char *file;
    stage = "output";
    check(ort->SessionEndProfiling(session.handle, session.allocator, &file));
    put("{'event':'profile','file':$}\n", file);
    check(ort->AllocatorFree(session.allocator, file));
}

void close_runtime(void)
{
    ort->ReleaseSession(session.handle);
    ort->ReleaseEnv(session.env);
}

/* The runtime: OpenVINO, through its C API.
 *
 * The headers are those of the very release: numbers of ov_element_type_e have moved between
 * releases. The library is opened and not linked, from the bundle; it finds what it needs, its
 * plug-ins and the reader of its format beside itself.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "edge_runner.h"
#include "openvino/c/ov_core.h"

const char runtime_library[] = "openvino_c";
const char *const artifacts[] = {"model.xml", NULL};
const char default_provider[] = "openvino:CPU";

enum { MAX_PROPERTIES = 4 + 200 }; /* our own and the bundle's */

static const uint8_t types[DTYPES] = {
    [DTYPE_FLOAT32] = F32,
    [DTYPE_FLOAT16] = F16,
    [DTYPE_FLOAT64] = F64,
    [DTYPE_INT8] = I8,
    [DTYPE_UINT8] = U8,
    [DTYPE_INT16] = I16,
    [DTYPE_UINT16] = U16,
    [DTYPE_INT32] = I32,
    [DTYPE_UINT32] = U32,
    [DTYPE_INT64] = I64,
    [DTYPE_UINT64] = U64,
    [DTYPE_BOOL] = BOOLEAN,
};

/* Each a pointer to the function of that name, of the type that the headers give it. */
#define FUNCTIONS(X) \
    X(ov_free) X(ov_get_error_info) X(ov_get_last_err_msg) X(ov_get_openvino_version) \
    X(ov_version_free) X(ov_core_create) X(ov_core_free) X(ov_core_get_available_devices) \
    X(ov_available_devices_free) X(ov_core_read_model) X(ov_model_free) \
    X(ov_core_compile_model_props) X(ov_compiled_model_free) X(ov_compiled_model_get_property) \
    X(ov_compiled_model_outputs_size) X(ov_compiled_model_output_by_index) \
    X(ov_compiled_model_create_infer_request) X(ov_output_const_port_free) \
    X(ov_port_get_any_name) X(ov_infer_request_set_tensor) X(ov_infer_request_get_tensor) \
    X(ov_infer_request_get_output_tensor_by_index) X(ov_infer_request_infer) \
    X(ov_infer_request_free) X(ov_infer_request_get_profiling_info) \
    X(ov_profiling_info_list_free) X(ov_tensor_create_from_host_ptr) X(ov_tensor_get_element_type) \
    X(ov_tensor_get_shape) X(ov_tensor_get_size) X(ov_tensor_data) X(ov_tensor_free) X(ov_shape_free)
#define POINTER(name) __typeof__(name) *name;
static struct {
    FUNCTIONS(POINTER)
} ov;

struct job {
    ov_infer_request_t *request;
};

static ov_core_t *core;
static ov_compiled_model_t *compiled;
static size_t outputs;
static const char *device; /* of "openvino:CPU" */
static struct job *first; /* whose last run the profile is of */

/* With the library's own words of this thread's last failure, where it has some. */
static void check(ov_status_e status)
{
    if (status == OK)
        return;
    const char *said = ov.ov_get_last_err_msg();
    fail("%s", said && *said ? said : ov.ov_get_error_info(status));
}

void check_settings(void)
{
    static const char *const own[] = {"INFERENCE_NUM_THREADS", "CACHE_DIR", "PERF_COUNT"};

    if (session_entries.count > 0 || cuda_graph)
        fail("OpenVINO has no options session.* and runner.cuda_graph");
    for (size_t i = 0; i < provider_options.count; i++)
        for (size_t j = 0; j < sizeof own / sizeof *own; j++)
            if (strcmp(provider_options.keys[i], own[j]) == 0)
                fail("the property %s is not the bundle's to set", own[j]);
}

/* "GPU" names "GPU" and the first of "GPU.0", "GPU.1". */
static bool is_device(const char *found)
{
    size_t length = strlen(device);
    return strncmp(found, device, length) == 0 && (!found[length] || found[length] == '.');
}

/* The device must be there; the message lists those that are. */
static void check_device(void)
{
    static const char prefix[] = "openvino:";
    ov_available_devices_t devices;
    char *list = "";
    bool found = false;

    device = strncmp(options.provider, prefix, sizeof prefix - 1) == 0
                 ? options.provider + sizeof prefix - 1
                 : "";
    check(ov.ov_core_get_available_devices(core, &devices));
    for (size_t i = 0; i < devices.size; i++) {
        found |= *device && is_device(devices.devices[i]);
        list = text("%s %s%s", list, prefix, devices.devices[i]);
    }
    if (!found)
        fail("the runtime has no %s, it has:%s", options.provider, list);
    ov.ov_available_devices_free(&devices);
}

static void find_functions(const char *library)
{
    void *handle = open_library(library);
#define FIND(name) \
    if (!(*(void **)&ov.name = find_symbol(handle, #name))) \
        fail("%s is no OpenVINO of this release: it has no %s", library, #name);
    FUNCTIONS(FIND)
}

void open_runtime(const char *library)
{
    ov_version_t version;

    find_functions(library);
    check(ov.ov_get_openvino_version(&version));
    /* "2026.4.1-22982-0123456789a-releases/2026/4": the release, which the manifest names. */
    char *release = text("%.*s", (int)strcspn(version.buildNumber, "-"), version.buildNumber);
    ov.ov_version_free(&version);
    check(ov.ov_core_create(&core));
    check_device();

    put("{'event':'env','protocol':#,'runner':'c','runtime':'openvino','version':$,", PROTOCOL,
        release);
    put("'arch':'" ARCH "','os':$,'threads':#,'provider':$,'optimization':$}\n", system_name,
        options.threads, options.provider, options.optimization);
    free(release);
}

static char *property(const char *name)
{
    char *value;
    check(ov.ov_compiled_model_get_property(compiled, name, &value));
    return value;
}

/* The bundle's properties with our own; how many they are. */
static size_t set_properties(ov_property_t *properties)
{
    bool has_precision = strcmp(device, "NPU") == 0;
    size_t count = 0;

    for (size_t i = 0; i < provider_options.count; i++) {
        const char *key = provider_options.keys[i];
        properties[count++] = (ov_property_t){key, provider_options.values[i]};
        has_precision |= strcmp(key, "INFERENCE_PRECISION_HINT") == 0;
    }
    if (!has_precision) /* bf16 or fp16 where the device has it, which breaks recurrent models */
        properties[count++] = (ov_property_t){"INFERENCE_PRECISION_HINT", "f32"};
    if (strcmp(device, "CPU") == 0)
        properties[count++] =
            (ov_property_t){"INFERENCE_NUM_THREADS", text("%d", (int)options.threads)};
    if (options.cache)
        properties[count++] = (ov_property_t){"CACHE_DIR", options.cache};
    if (options.profile)
        properties[count++] = (ov_property_t){"PERF_COUNT", "YES"};
    return count;
}

/* Read and compiled. Not compiled from the file: what is cached is then found by the model's
 * content and not by the file's path and time. */
static int64_t compile(const char *artifact)
{
    static ov_property_t properties[MAX_PROPERTIES];
    size_t count = set_properties(properties);
    ov_model_t *model;

    int64_t start = now();
    check(ov.ov_core_read_model(core, artifact, NULL, &model));
    check(ov.ov_core_compile_model_props(core, model, device, count, properties, &compiled));
    int64_t ns = now() - start;
    ov.ov_model_free(model);
    return ns;
}

void load(const char *artifact)
{
    int64_t ns = compile(artifact);
    char *runs_on = property("EXECUTION_DEVICES"), *found = property("LOADED_FROM_CACHE");
    bool cached = *found == 't' || *found == 'Y'; /* "true" or "YES" */

    if (!is_device(runs_on))
        fail("asked for %s, the model runs on %s", options.provider, runs_on);
    put("{'event':'load','ns':#", ns);
    if (options.cache)
        put(cached ? ",'cached':true" : ",'cached':false");
    put("}\n");
    ov.ov_free(runs_on);
    ov.ov_free(found);
    check(ov.ov_compiled_model_outputs_size(compiled, &outputs));
}

size_t output_count(void)
{
    return outputs;
}

struct job *bind_inputs(const struct tensor *tensor, size_t count, char **data)
{
    struct job *job = allocate(1, sizeof *job);

    first = first ? first : job;
    check(ov.ov_compiled_model_create_infer_request(compiled, &job->request));
    for (size_t i = 0; i < count; i++, tensor++) {
        ov_shape_t shape = {(int64_t)tensor->rank, (int64_t *)tensor->shape};
        ov_tensor_t *made;
        check(ov.ov_tensor_create_from_host_ptr(types[tensor->dtype], shape, data[i], &made));
        check(ov.ov_infer_request_set_tensor(job->request, tensor->name, made));
        ov.ov_tensor_free(made); /* the request keeps it */
    }
    return job;
}

void unbind(struct job *job)
{
    ov.ov_infer_request_free(job->request);
    free(job);
}

int64_t run(struct job *job)
{
    int64_t start = now();
    ov_status_e status = ov.ov_infer_request_infer(job->request);
    int64_t ns = now() - start;
    check(status);
    return ns;
}

static int find_type(ov_element_type_e type)
{
    int dtype = 0;
    while (dtype < DTYPES && types[dtype] != (int)type)
        dtype++;
    return dtype;
}

/* By the name of the golden output: of several names that an output has, the library gives any.
 * Of one that the model does not have, by its place, under a name that it does have. */
static ov_tensor_t *find_output(struct job *job, size_t index, const char **name)
{
    ov_tensor_t *found;
    ov_output_const_port_t *port;
    char *any;

    *name = (int64_t)index < golden_count ? golden_names[index] : NULL;
    if (*name && ov.ov_infer_request_get_tensor(job->request, *name, &found) == OK)
        return found;
    check(ov.ov_infer_request_get_output_tensor_by_index(job->request, index, &found));
    check(ov.ov_compiled_model_output_by_index(compiled, index, &port));
    check(ov.ov_port_get_any_name(port, &any));
    ov.ov_output_const_port_free(port);
    *name = any; /* never freed: it is said once */
    return found;
}

/* The C API cannot make the shape of a scalar, and says that the caller is wrong. */
static void get_shape(const ov_tensor_t *tensor, struct output *output)
{
    ov_shape_t shape = {0, NULL};
    size_t elements;
    ov_status_e status = ov.ov_tensor_get_shape(tensor, &shape);

    output->rank = shape.rank;
    if (status == INVALID_C_PARAM) {
        check(ov.ov_tensor_get_size(tensor, &elements));
        output->rank = 0;
        if (elements == 1)
            return;
    }
    check(status);
    for (size_t i = 0; i < output->rank && i < MAX_RANK; i++)
        output->shape[i] = shape.dims[i];
    ov.ov_shape_free(&shape);
}

void get_output(struct job *job, size_t index, struct output *output)
{
    ov_tensor_t *tensor = find_output(job, index, &output->name);
    ov_element_type_e type;
    void *data;

    check(ov.ov_tensor_get_element_type(tensor, &type));
    get_shape(tensor, output);
    output->dtype = find_type(type);
    if (output->dtype == DTYPES || output->rank > MAX_RANK)
        fail("the output %s has element type %d and rank %zu, which cannot be told", output->name,
             (int)type, output->rank);
    check(ov.ov_tensor_data(tensor, &data));
    output->data = data; /* the request's: it outlives this view */
    ov.ov_tensor_free(tensor);
}

/* One node of the last run, in the form of ONNX Runtime's profile; times in us. */
static void put_node(const ov_profiling_info_t *node, size_t index)
{
    char *name = text("%s_kernel_time", node->node_name), *number = text("%zu", index);
    put("{'cat':'Node','name':$,'dur':#,'args':{'op_name':$,'provider':$,", name, node->real_time,
        node->node_type, options.provider);
    put("'node_index':$,'kernel':$}}", number, node->exec_type);
    free(name);
    free(number);
}

void put_profile(void)
{
    ov_profiling_info_list_t nodes;
    const char *path = text("%s.json", options.profile);
    size_t count = 0;

    stage = "output";
    check(ov.ov_infer_request_get_profiling_info(first->request, &nodes));
    int file = open_file(path, true);
    if (file < 0)
        fail("cannot write %s: %s", path, strerror(errno));
    put_into(file, path);
    for (size_t i = 0; i < nodes.size; i++) {
        if (nodes.profiling_infos[i].status != EXECUTED)
            continue; /* others were fused into these */
        put(count ? ",\n" : "[\n");
        put_node(&nodes.profiling_infos[i], count++);
    }
    put(count ? "\n]\n" : "[]\n");
    put_back();
    if (close(file) != 0)
        fail("cannot write %s: %s", path, strerror(errno));
    ov.ov_profiling_info_list_free(&nodes);
    put("{'event':'profile','file':$}\n", path);
}

void close_runtime(void)
{
    ov.ov_compiled_model_free(compiled);
    ov.ov_core_free(core);
}

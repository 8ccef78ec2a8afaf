/* A driver without a GPU: the functions of cuda.h (CUDA 13) that edge_cuda.py calls.

Device memory is the host's under other addresses, so that one taken for the other is a fault.
Work is a number that a fake runtime gives to fake_enqueue; it is done, by the runtime's own
function, when a stream is waited for and not before. What is copied to the device is on its way
until the default stream is waited for, which other streams do not do. FAKE_CUDA: "none" has no
GPU, "two" has two, "old" no driver that is new enough, "small" no memory of more than 100 bytes, "strict" none
of what is captured. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TAG (UINT64_C(1) << 60)
#define MOST 1000

typedef struct {
    int work[MOST], count, capturing, captured[MOST], captured_count;
} Stream;
typedef struct {
    int work[MOST], count;
} Graph;

typedef struct Copy {
    struct Copy *before;
    uint64_t to;
    size_t size;
    char data[];
} Copy;

static Copy *on_their_way;
static void (*perform)(int);
static int current;

static const char *mode(void) {
    const char *found = getenv("FAKE_CUDA");
    return found ? found : "";
}

void fake_perform(void (*function)(int)) { perform = function; }

int fake_enqueue(uint64_t handle, int work) {
    Stream *stream = (Stream *)(uintptr_t)handle;
    if (!stream || !current)
        return 400;
    if (stream->capturing && !strcmp(mode(), "strict"))
        return stream->capturing = -1, 900;
    if (stream->capturing)
        stream->captured[stream->captured_count++] = work;
    else
        stream->work[stream->count++] = work;
    return 0;
}

/* The library is TensorRT's libnvinfer as well: 10.13.3. */
int getInferLibVersion(void) { return 101303; }

int cuInit(unsigned flags) { return flags ? 1 : strcmp(mode(), "old") ? 0 : 35; }
int cuGetErrorString(int error, const char **text) {
    *text = error == 35    ? "CUDA driver version is insufficient for CUDA runtime version"
            : error == 201 ? "invalid device context"
                           : "fake error";
    return 0;
}
int cuDriverGetVersion(int *version) { return *version = 13010, 0; }
int cuDeviceGetCount(int *count) {
    return *count = !strcmp(mode(), "two") ? 2 : strcmp(mode(), "none") ? 1 : 0, 0;
}
int cuDeviceGet(int *device, int index) { return *device = index + 7, 0; }
int cuDeviceGetName(char *name, int size, int device) {
    return device < 9 ? strncpy(name, "Fake GPU", size), 0 : 101;
}
int cuDeviceGetAttribute(int *value, int what, int device) {
    return *value = what == 75 ? 8 : what == 76 ? 6 : -1, device < 9 ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    return *context = &current, device < 9 ? 0 : 101;
}
int cuCtxSetCurrent(void *context) { return current = context == &current, 0; }
int cuMemAlloc_v2(uint64_t *address, size_t size) {
    if (size > 100 && !strcmp(mode(), "small"))
        return 2;
    *address = (uint64_t)(uintptr_t)calloc(1, size) | TAG;
    return current ? 0 : 201;
}
static void arrive(Copy *copy) {
    if (!copy)
        return;
    arrive(copy->before);
    memcpy((void *)(uintptr_t)(copy->to & ~TAG), copy->data, copy->size);
    free(copy);
}
int cuMemFree_v2(uint64_t address) {
    arrive(on_their_way);
    on_their_way = NULL;
    return address & TAG ? free((void *)(uintptr_t)(address & ~TAG)), 0 : 1;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
    Copy *made = malloc(sizeof *made + size);
    made->before = on_their_way, made->to = to, made->size = size;
    memcpy(made->data, from, size);
    return to & TAG ? on_their_way = made, 0 : 1;
}
int fake_write(uint64_t to, const void *from, size_t size) {
    return to & TAG ? memcpy((void *)(uintptr_t)(to & ~TAG), from, size), 0 : 1;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    return from & TAG ? memcpy(to, (void *)(uintptr_t)(from & ~TAG), size), 0 : 1;
}
int cuStreamCreate(void **stream, unsigned flags) {
    *stream = calloc(1, sizeof(Stream));
    return flags == 1 && current ? 0 : 201;
}
int cuStreamSynchronize(void *handle) {
    Stream *stream = handle;
    if (!stream)
        return arrive(on_their_way), on_their_way = NULL, 0;
    for (int index = 0; index < stream->count; index++)
        perform(stream->work[index]);
    return stream->count = 0, stream->capturing ? 900 : 0;
}
int cuStreamBeginCapture_v2(void *handle, int how) {
    Stream *stream = handle;
    return stream->captured_count = 0, stream->capturing = how == 1, how == 1 ? 0 : 1;
}
int cuStreamEndCapture(void *handle, void **graph) {
    Stream *stream = handle;
    Graph *made = calloc(1, sizeof *made);
    memcpy(made->work, stream->captured, sizeof made->work);
    made->count = stream->captured_count;
    *graph = made;
    int error = stream->capturing > 0 ? 0 : 901;
    return stream->capturing = 0, error;
}
int cuGraphInstantiateWithFlags(void **launched, void *graph, uint64_t flags) {
    Graph *made = malloc(sizeof *made);
    *made = *(Graph *)graph;
    return *launched = made, flags ? 1 : 0;
}
int cuGraphLaunch(void *launched, void *handle) {
    Graph *graph = launched;
    Stream *stream = handle;
    for (int index = 0; index < graph->count; index++)
        stream->work[stream->count++] = graph->work[index];
    return 0;
}
int cuGraphDestroy(void *graph) { return free(graph), 0; }
int cuGraphExecDestroy(void *launched) { return free(launched), 0; }

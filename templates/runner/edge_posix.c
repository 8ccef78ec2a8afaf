/* The system: Linux, and what else has POSIX and /proc. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "edge_runner.h"

const char system_name[] = "linux", library_prefix[] = "lib", library_suffix[] = ".so";

void leave(int code)
{
    _exit(code);
}

void take_standard_output(void)
{
    out = dup(STDOUT_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
}

int open_file(const char *path, bool write)
{
    if (write)
        return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us up */
}

bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool is_folder(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

void each_name(const char *folder, void (*take)(const char *name))
{
    DIR *listing = opendir(folder);
    for (struct dirent *entry; listing && (entry = readdir(listing));)
        take(entry->d_name);
    if (listing)
        closedir(listing);
}

void *open_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail("cannot open the runtime: %s", dlerror());
    return library;
}

void *find_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

void set_environment(const char *name, const char *value)
{
    setenv(name, value, 1);
}

const native *native_path(const char *path)
{
    return path;
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec time = {0, 0};
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int64_t now(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

int64_t cpu_ns(void)
{
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

/* Not ru_maxrss: that starts from the parent's. */
int64_t peak_bytes(void)
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

void reset_peak(void)
{
    int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return;
    write_all(file, "5", 1);
    close(file);
}

int64_t involuntary_switches(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : -1;
}

int main(int argc, char **argv)
{
    (void)argc;
    return run_main(argv);
}

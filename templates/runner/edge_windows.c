/* The system: Windows 10 or newer. Paths and arguments are UTF-16 there, and UTF-8 everywhere
 * else in the runner. */
#define WIN32_LEAN_AND_MEAN
#define _WIN32_WINNT 0x0a00

#include <windows.h>

#include <fcntl.h>
#include <io.h>
#include <psapi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "edge_runner.h"

const char system_name[] = "windows", library_prefix[] = "", library_suffix[] = ".dll";
int _dowildcard = 0; /* MinGW's start-up code would put file names for "*" in arguments */

static wchar_t *widen(const char *narrow)
{
    int length = MultiByteToWideChar(CP_UTF8, 0, narrow, -1, NULL, 0);
    wchar_t *made = allocate(length, sizeof *made);
    MultiByteToWideChar(CP_UTF8, 0, narrow, -1, made, length);
    return made;
}

/* Half a surrogate pair, which Windows allows in names, becomes U+FFFD. */
static char *narrow(const wchar_t *wide)
{
    int length = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
    char *made = allocate(length, 1);
    WideCharToMultiByte(CP_UTF8, 0, wide, -1, made, length, NULL, NULL);
    return made;
}

/* Not _exit: that waits for the runtime's threads in its libraries' clean-up. */
void leave(int code)
{
    TerminateProcess(GetCurrentProcess(), code);
    __builtin_unreachable();
}

void take_standard_output(void)
{
    out = _dup(1);
    _dup2(2, 1);
    _setmode(out, _O_BINARY); /* or lines would end with CR LF */
}

int open_file(const char *path, bool write)
{
    wchar_t *wide = widen(path);
    int flags = write ? _O_WRONLY | _O_CREAT | _O_TRUNC : _O_RDONLY;
    int file = _wopen(wide, flags | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE);
    free(wide);
    return file;
}

static DWORD attributes(const char *path)
{
    wchar_t *wide = widen(path);
    DWORD found = GetFileAttributesW(wide);
    free(wide);
    return found;
}

bool exists(const char *path)
{
    return attributes(path) != INVALID_FILE_ATTRIBUTES;
}

bool is_folder(const char *path)
{
    DWORD found = attributes(path);
    return found != INVALID_FILE_ATTRIBUTES && (found & FILE_ATTRIBUTE_DIRECTORY);
}

void each_name(const char *folder, void (*take)(const char *name))
{
    char *pattern = join(folder, "*");
    wchar_t *wide = widen(pattern);
    WIN32_FIND_DATAW entry;
    HANDLE listing = FindFirstFileW(wide, &entry);

    for (BOOL more = listing != INVALID_HANDLE_VALUE; more; more = FindNextFileW(listing, &entry)) {
        char *name = narrow(entry.cFileName);
        take(name);
        free(name);
    }
    if (listing != INVALID_HANDLE_VALUE)
        FindClose(listing);
    free(wide);
    free(pattern);
}

static char *last_error(void)
{
    DWORD code = GetLastError();
    wchar_t said[500] = L"";
    DWORD length = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL,
                                  code, 0, said, 500, NULL);
    while (length > 0 && said[length - 1] <= L' ')
        said[--length] = L'\0';
    return text("error %lu: %s", code, narrow(said));
}

/* What the library needs is looked for beside it, beside the runner and in Windows, and not in
 * the current folder or PATH. Windows wants the whole path for that. */
void *open_library(const char *path)
{
    wchar_t *wide = widen(path), *whole = NULL;
    DWORD length = GetFullPathNameW(wide, 0, NULL, NULL);
    whole = allocate(length, sizeof *whole);
    GetFullPathNameW(wide, length, whole, NULL);
    void *library = LoadLibraryExW(
        whole, NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS | LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR);
    if (!library)
        fail("cannot open the runtime: %s: %s", path, last_error());
    free(whole);
    free(wide);
    return library;
}

void *find_symbol(void *library, const char *name)
{
    return (void *)GetProcAddress(library, name);
}

void set_environment(const char *name, const char *value)
{
    _putenv_s(name, value);
}

const native *native_path(const char *path)
{
    return widen(path);
}

int64_t now(void)
{
    static LARGE_INTEGER frequency;
    LARGE_INTEGER count;

    if (frequency.QuadPart == 0)
        QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&count);
    int64_t seconds = count.QuadPart / frequency.QuadPart;
    int64_t rest = count.QuadPart % frequency.QuadPart;
    return seconds * 1000000000 + rest * 1000000000 / frequency.QuadPart;
}

static int64_t filetime_ns(FILETIME time)
{
    return (int64_t)((uint64_t)time.dwHighDateTime << 32 | time.dwLowDateTime) * 100;
}

int64_t cpu_ns(void)
{
    FILETIME made, ended, kernel = {0, 0}, user = {0, 0};
    GetProcessTimes(GetCurrentProcess(), &made, &ended, &kernel, &user);
    return filetime_ns(kernel) + filetime_ns(user);
}

int64_t peak_bytes(void)
{
    PROCESS_MEMORY_COUNTERS counters;
    if (!K32GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof counters))
        return -1;
    return counters.PeakWorkingSetSize;
}

void reset_peak(void)
{
    /* Windows keeps one peak for a process's whole life. */
}

int64_t involuntary_switches(void)
{
    return -1; /* not told */
}

int wmain(int argc, wchar_t **argv)
{
    char **words = allocate(argc, sizeof *words);
    for (int i = 0; i < argc; i++)
        words[i] = narrow(argv[i]);
    return run_main(words);
}

/* Says its arguments as the C runtime and as CommandLineToArgvW take them apart, or starts a command
   line from standard input with "--start". */
#include <stdio.h>
#include <windows.h>
#include <shellapi.h>
#include <fcntl.h>
#include <io.h>
static void say(const wchar_t *word) {
  char text[65536];
  int size = WideCharToMultiByte(CP_UTF8, 0, word, -1, text, sizeof text, 0, 0);
  fwrite(text, 1, size, stdout);
}
int wmain(int argc, wchar_t **argv) {
  int count, at;
  wchar_t **own = CommandLineToArgvW(GetCommandLineW(), &count);
  _setmode(_fileno(stdout), _O_BINARY);
  if (argc == 2 && !wcscmp(argv[1], L"--start")) {
    static char line[65536]; static wchar_t wide[65536];
    STARTUPINFOW with = {sizeof with}; PROCESS_INFORMATION made;
    _setmode(_fileno(stdin), _O_BINARY);
    line[fread(line, 1, sizeof line - 1, stdin)] = 0;
    MultiByteToWideChar(CP_UTF8, 0, line, -1, wide, 65536);
    if (!CreateProcessW(0, wide, 0, 0, TRUE, 0, 0, 0, &with, &made)) return GetLastError();
    WaitForSingleObject(made.hProcess, INFINITE);
    return 0;
  }
  for (at = 1; at < argc; at++) say(argv[at]);
  say(L"<<>>");
  for (at = 1; at < count; at++) say(own[at]);
  return 0;
}

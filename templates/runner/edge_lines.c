/* JSON lines on standard output, and how a run ends that fails. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "edge_runner.h"

enum { MAX_MESSAGE = 8000 }; /* bytes of an error message: readers bound their lines */

int out;
static int lines = -1; /* our own standard output while a file is written */
static const char *written;
const char *stage = "arguments";

bool write_all(int file, const char *data, size_t size)
{
    while (size > 0) {
        /* Windows counts in 32 bits, Linux writes no more than that at once either. */
        ssize_t done = write(file, data, size < 1 << 30 ? size : 1 << 30);
        if (done < 0)
            return false;
        data += done;
        size -= done;
    }
    return true;
}

void put_into(int file, const char *path)
{
    lines = out;
    written = path;
    out = file;
}

void put_back(void)
{
    out = lines;
    lines = -1;
}

/* Flushed with every line: what was found stays known when the process dies later. */
static void put_char(char c)
{
    static char buffer[4096];
    static size_t used;
    size_t size = ++used;

    buffer[size - 1] = c;
    if (c != '\n' && size < sizeof buffer)
        return;
    used = 0;
    if (write_all(out, buffer, size))
        return;
    if (lines < 0)
        leave(1); /* nobody reads any more, so there is no line to say it with */
    put_back();
    fail("cannot write %s: %s", written, strerror(errno));
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

char hex_digit(unsigned number)
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

void put(const char *format, ...)
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

void put_list(const int64_t *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (i > 0)
            put_char(',');
        put_number(numbers[i]);
    }
    put_char(']');
}

/* NULL without memory. Not vasprintf, which Windows' C library has not. */
static char *format_text(const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int size = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *made = size < 0 ? NULL : malloc(size + (size_t)1);
    if (made)
        vsnprintf(made, size + (size_t)1, format, arguments);
    return made;
}

void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    char *message = format_text(format, arguments);
    if (!message)
        message = "out of memory";
    else if (strlen(message) > MAX_MESSAGE)
        message[MAX_MESSAGE] = '\0';
    put("{'event':'error','stage':$,'message':$}\n", stage, message);
    leave(1);
}

char *text(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    char *made = format_text(format, arguments);
    va_end(arguments);
    if (!made)
        fail("out of memory");
    return made;
}

char *join(const char *folder, const char *name)
{
    return text("%s/%s", folder, name);
}

void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory)
        fail("out of memory: %zu times %zu bytes", count, size);
    return memory;
}

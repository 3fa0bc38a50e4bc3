/* text.c - writes text to a descriptor (see text.h). One thread per symm_text; no lock. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "fail.h"

static void flush(symm_text *t) {
    size_t at = 0;
    while (at < t->len && !t->failed) {
        ssize_t k = SYMM_FAIL_CALL(dump_write, -1, EIO, write(t->fd, t->buf + at, t->len - at));
        if (k < 0 && errno == EINTR) continue;
        if (k > 0)
            at += (size_t)k;
        else
            t->failed = k < 0 ? errno : EIO;
    }
    t->len = 0;
}

void symm_text_put(symm_text *t, const char *fmt, ...) {
    enum { PIECE = sizeof t->buf / 2 };
    va_list ap;
    if (t->len > sizeof t->buf - PIECE) flush(t);
    va_start(ap, fmt);
    int n = vsnprintf(t->buf + t->len, PIECE, fmt, ap);
    va_end(ap);
    if (n > 0) t->len += (size_t)n < PIECE ? (size_t)n : PIECE - 1;
}

symmResult_t symm_text_end(symm_text *t) {
    flush(t);
    if (!t->failed) return symmSuccess;
    return SYMM_ERR(symmSystemError, "writing the dump to fd %d: %s", t->fd, strerror(t->failed));
}

const char *symm_text_bytes(unsigned long long bytes, char *out, size_t cap) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int u = 0;
    double value = (double)bytes;
    for (; value >= 1024 && u < 6; u++) value /= 1024;
    if (bytes == (unsigned long long)value << (10 * u))
        snprintf(out, cap, "%.0f %s", value, units[u]);
    else
        snprintf(out, cap, "%.*f %s", value < 10 ? 2 : value < 100 ? 1 : 0, value, units[u]);
    return out;
}

/* Bytes of the UTF-8 sequence at s, 0 if there is none: overlong ones, surrogates and what lies
 * past U+10FFFF are none. */
static size_t sequence(const unsigned char *s) {
    const size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (s[0] > 0xf4) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0;
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
    return n;
}

size_t symm_text_json(const char *s, char out[SYMM_TEXT_JSON]) {
    const unsigned char c = (unsigned char)*s;
    const size_t n = sequence((const unsigned char *)s);
    SYMM_ASSERT(c);
    if (c == '"' || c == '\\')
        snprintf(out, SYMM_TEXT_JSON, "\\%c", c);
    else if (c < 0x20 || !n)
        snprintf(out, SYMM_TEXT_JSON, "\\u%04x", c);
    else
        snprintf(out, SYMM_TEXT_JSON, "%.*s", (int)n, s);
    return n ? n : 1;
}

/* text.c - writes text to a descriptor (see text.h). One thread per symm_text; no lock. */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

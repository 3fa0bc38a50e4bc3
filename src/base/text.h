/* text.h - text for people, written to a descriptor piece by piece. One thread. */
#ifndef SYMM_TEXT_H_
#define SYMM_TEXT_H_

#include <stddef.h>

#include "status.h"

/* Start: {.fd = fd}. After a failed write the rest is dropped; symm_text_end returns the error. */
typedef struct {
    int fd, failed;
    size_t len;
    char buf[2048];
} symm_text;

/* A piece of at most a few hundred bytes. */
void symm_text_put(symm_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Writes what is left. */
symmResult_t symm_text_end(symm_text *t);
/* "1.5 MiB" into out; returns out. Exact where a unit divides it, else three digits. */
const char *symm_text_bytes(unsigned long long bytes, char *out, size_t cap);

#endif

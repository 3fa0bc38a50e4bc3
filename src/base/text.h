/* text.h - text for people, written to a descriptor piece by piece; names as JSON. One thread. */
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

enum { SYMM_TEXT_JSON = 8 };

/* A piece of at most a few hundred bytes. */
void symm_text_put(symm_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Writes what is left. */
symmResult_t symm_text_end(symm_text *t);
/* "1.5 MiB" into out; returns out. Exact where a unit divides it, else three digits. */
const char *symm_text_bytes(unsigned long long bytes, char *out, size_t cap);
/* What s begins with, a character, as a string in JSON has it; returns how many bytes of s that
 * takes. s is not empty. A name may have any bytes, or end inside a character: what is no UTF-8 is
 * shown as Latin-1. */
size_t symm_text_json(const char *s, char out[SYMM_TEXT_JSON]);

#endif

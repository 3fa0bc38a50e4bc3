/* nccl_kit.h - for tests in NCCL's ABI: its declarations, checks of its codes. With
 * -DNCCL_TEST_HEADER they are those of an nccl.h, else the drop-in's own. */
#ifndef NCCL_KIT_H_
#define NCCL_KIT_H_

#ifdef NCCL_TEST_HEADER
#include <nccl.h>
#else
#include "../../nccl-tests-plugin/symbols.h"
#define NCCL_VERSION_CODE 22809
#endif

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "t.h"

#define N_OK(call)        n_result((call), ncclSuccess, #call, __FILE__, __LINE__)
#define N_ERR(call, code) n_result((call), (code), #call, __FILE__, __LINE__)
/* The same, and a part of ncclGetLastError's text. */
#define N_REFUSED(call, code, part)                                                  \
    do {                                                                             \
        N_ERR(call, code);                                                           \
        t_msg(ncclGetLastError(NULL), part, "ncclGetLastError", __FILE__, __LINE__); \
    } while (0)

static inline void n_result(ncclResult_t got, ncclResult_t want, const char *call, const char *file,
                            int line) {
    if (got != want)
        t_fail(file, line, "%s: %d, not %d: %s", call, (int)got, (int)want, ncclGetLastError(NULL));
}

/* A config as a program of that version has it. */
static inline ncclConfig_t n_config(unsigned version, size_t size) {
    ncclConfig_t c;
    memset(&c, 0xa5, sizeof c);
#ifdef NCCL_TEST_HEADER
    const ncclConfig_t made = NCCL_CONFIG_INITIALIZER;
    memcpy(&c, &made, size < sizeof made ? size : sizeof made);
#else
#define CONFIG_INT(field, since, lo, hi) c.field = NCCL_CONFIG_UNDEF_INT;
#define CONFIG_STR(field, since)         c.field = NULL;
#include "../../nccl-tests-plugin/config.def"
#undef CONFIG_INT
#undef CONFIG_STR
    if (size < sizeof c) memset((char *)&c + size, 0xa5, sizeof c - size);
    c.magic = NCCL_API_MAGIC;
#endif
    c.size = size;
    c.version = version;
    return c;
}

#endif

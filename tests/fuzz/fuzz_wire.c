/* fuzz_wire.c - libFuzzer entry for the wire parser. The first four bytes choose the caller's
 * limits, the rest is the datagram, copied to a block that ends where it ends. Parsing must read
 * nothing beyond it, leave *m alone when it refuses, keep the limits when it accepts, and what it
 * accepted must encode to the same header. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "transport/mesh/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok) {
    if (!ok) abort();
}

static void accepted(const symm_wire_msg *m, const uint8_t *buf, size_t len, size_t max_bytes,
                     unsigned max_fds) {
    uint8_t again[SYMM_WIRE_HEADER];
    symm_wire_put(m, again);
    require(memcmp(again, buf, SYMM_WIRE_HEADER) == 0);
    require(m->bytes == len - SYMM_WIRE_HEADER && m->bytes <= max_bytes && m->nfds <= max_fds);
}

/* The datagram with a valid start, so that the fields behind it are reached without guessing the
 * magic. */
static void mend(uint8_t *buf, size_t len) {
    const symm_wire_msg blank = {.bytes = (uint32_t)(len - SYMM_WIRE_HEADER)};
    uint8_t header[SYMM_WIRE_HEADER];
    symm_wire_put(&blank, header);
    memcpy(buf, header, 6);
    memcpy(buf + 10, header + 10, 6);
}

static void parse(const uint8_t *buf, size_t len, size_t max_bytes, unsigned max_fds) {
    symm_wire_msg m, before;
    memset(&m, 0x77, sizeof m);
    before = m;
    const char *why = symm_wire_parse(buf, len, max_bytes, max_fds, &m);
    if (!why)
        accepted(&m, buf, len, max_bytes, max_fds);
    else
        require(why[0] && memcmp(&m, &before, sizeof m) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 4) return 0;
    size_t max_bytes = data[0] | (size_t)data[1] << 8, len = size - 4;
    unsigned max_fds = data[2] | (unsigned)data[3] << 8;
    uint8_t *buf = malloc(len ? len : 1);
    require(buf != NULL);
    memcpy(buf, data + 4, len);
    parse(buf, len, max_bytes, max_fds);
    if (len >= SYMM_WIRE_HEADER) {
        mend(buf, len);
        parse(buf, len, max_bytes, max_fds);
    }
    free(buf);
    return 0;
}

/* wire.c - encodes and checks the 32-byte header that every message between processes starts with
 * (see wire.h). Pure functions: any thread, no lock, no allocation.
 *
 *   0 magic u32 | 4 version u16 | 6 type u16 | 8 nfds u16 | 10 zero u16 | 12 bytes u32 | 16 from
 * u32 | 20 to u32 | 24 nonce u64
 *
 * Bytes are assembled one by one, so the order on the wire does not depend on the machine and `buf`
 * need not be aligned. */
#include "wire.h"

enum {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_TYPE = 6,
    AT_NFDS = 8,
    AT_ZERO = 10,
    AT_BYTES = 12,
    AT_FROM = 16,
    AT_TO = 20,
    AT_NONCE = 24
};
_Static_assert(AT_NONCE + 8 == SYMM_WIRE_HEADER, "the fields fill the header");

static void put(uint8_t *out, unsigned width, uint64_t value) {
    for (unsigned i = 0; i < width; i++) out[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *in, unsigned width) {
    uint64_t value = 0;
    for (unsigned i = 0; i < width; i++) value |= (uint64_t)in[i] << (8 * i);
    return value;
}

void symm_wire_put(const symm_wire_msg *m, uint8_t *out) {
    put(out + AT_MAGIC, 4, SYMM_WIRE_MAGIC);
    put(out + AT_VERSION, 2, SYMM_WIRE_VERSION);
    put(out + AT_TYPE, 2, m->type);
    put(out + AT_NFDS, 2, m->nfds);
    put(out + AT_ZERO, 2, 0);
    put(out + AT_BYTES, 4, m->bytes);
    put(out + AT_FROM, 4, m->from);
    put(out + AT_TO, 4, m->to);
    put(out + AT_NONCE, 8, m->nonce);
}

/* All but what the caller sets limits for. */
static const char *read_head(const uint8_t *buf, symm_wire_msg *m) {
    if (get(buf + AT_MAGIC, 4) != SYMM_WIRE_MAGIC) return "not a message of this library";
    if (get(buf + AT_VERSION, 2) != SYMM_WIRE_VERSION) return "another version of the wire format";
    if (get(buf + AT_ZERO, 2) != 0) return "a reserved field is not zero";
    *m = (symm_wire_msg){
        .type = (uint16_t)get(buf + AT_TYPE, 2),
        .nfds = (uint16_t)get(buf + AT_NFDS, 2),
        .bytes = (uint32_t)get(buf + AT_BYTES, 4),
        .from = (uint32_t)get(buf + AT_FROM, 4),
        .to = (uint32_t)get(buf + AT_TO, 4),
        .nonce = get(buf + AT_NONCE, 8),
    };
    return NULL;
}

static const char *beyond_limits(const symm_wire_msg *m, size_t max_bytes, unsigned max_fds) {
    if (m->bytes > max_bytes) return "more payload than is allowed";
    if (m->nfds > max_fds) return "more file descriptors than are allowed";
    return NULL;
}

const char *symm_wire_head(const uint8_t *buf, size_t max_bytes, unsigned max_fds,
                           symm_wire_msg *m) {
    symm_wire_msg read;
    const char *why = read_head(buf, &read);
    if (!why) why = beyond_limits(&read, max_bytes, max_fds);
    if (!why) *m = read;
    return why;
}

const char *symm_wire_parse(const uint8_t *buf, size_t len, size_t max_bytes, unsigned max_fds,
                            symm_wire_msg *m) {
    symm_wire_msg read;
    if (!buf || len < SYMM_WIRE_HEADER) return "shorter than a header";
    const char *why = read_head(buf, &read);
    if (!why && read.bytes != len - SYMM_WIRE_HEADER)
        why = "the length field differs from what came";
    if (!why) why = beyond_limits(&read, max_bytes, max_fds);
    if (!why) *m = read;
    return why;
}

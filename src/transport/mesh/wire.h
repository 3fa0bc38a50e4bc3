/* wire.h - the one message format between processes: a 32-byte header, then the payload. Pure
 * functions, any thread. Little-endian, fixed width. Nothing that arrives is trusted before
 * symm_wire_parse said yes. */
#ifndef SYMM_WIRE_H_
#define SYMM_WIRE_H_

#include <stddef.h>
#include <stdint.h>

#define SYMM_WIRE_MAGIC   0x6d6d7973u /* "symm" */
#define SYMM_WIRE_VERSION 1
#define SYMM_WIRE_HEADER  32

typedef struct {
    uint16_t type;
    uint16_t nfds;
    uint32_t bytes; /* of payload */
    uint32_t from, to;
    uint64_t nonce; /* of the receiving mesh */
} symm_wire_msg;

/* Writes SYMM_WIRE_HEADER bytes. */
void symm_wire_put(const symm_wire_msg *m, uint8_t *out);
/* Reads the header at the start of a stream, whose payload may not be there yet. As
 * symm_wire_parse, without the comparison with a length. */
const char *symm_wire_head(const uint8_t *buf, size_t max_bytes, unsigned max_fds,
                           symm_wire_msg *m);
/* Reads a whole datagram of `len` bytes. Returns NULL and fills *m, or a short text that says what
 * is wrong with it: too short, wrong magic, other version, length field that differs from len, more
 * than max_bytes or max_fds, or a non-zero reserved field. */
const char *symm_wire_parse(const uint8_t *buf, size_t len, size_t max_bytes, unsigned max_fds,
                            symm_wire_msg *m);

#endif

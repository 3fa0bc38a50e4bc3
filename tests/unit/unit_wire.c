/* unit_wire.c - the wire format: its bytes, the round trip, every malformed field, every
 * truncation; and that of addresses. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "transport/boot/tcp_socket.h"
#include "transport/mesh/wire.h"
#include "t.h"

static const symm_wire_msg sample = {.type = 0x0102,
                                     .nfds = 0x0304,
                                     .bytes = 8,
                                     .from = 0x05060708,
                                     .to = 0x090a0b0c,
                                     .nonce = 0x1112131415161718};

/* The sample with its payload. */
enum { LEN = SYMM_WIRE_HEADER + 8 };
static void message(uint8_t *out) {
    memset(out, 0xee, LEN);
    symm_wire_put(&sample, out);
}

static const char *parsed(const uint8_t *buf, size_t len, symm_wire_msg *m) {
    return symm_wire_parse(buf, len, 4096, UINT16_MAX, m);
}

/* It is refused with `part` in the reason, and *m is not touched. */
static void refused(const uint8_t *buf, size_t len, size_t max_bytes, unsigned max_fds,
                    const char *part) {
    symm_wire_msg m, before;
    memset(&m, 0x77, sizeof m);
    before = m;
    const char *why = symm_wire_parse(buf, len, max_bytes, max_fds, &m);
    T_CHECK(why != NULL);
    T_MSG(why, part);
    T_EQ(memcmp(&m, &before, sizeof m), 0);
}

static void bytes_on_the_wire_are_fixed(void) {
    static const uint8_t want[SYMM_WIRE_HEADER] = {'s',  'y',  'm',  'm',  1,    0,    0x02, 0x01,
                                                   0x04, 0x03, 0,    0,    8,    0,    0,    0,
                                                   0x08, 0x07, 0x06, 0x05, 0x0c, 0x0b, 0x0a, 0x09,
                                                   0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11};
    uint8_t got[LEN];
    message(got);
    for (int i = 0; i < SYMM_WIRE_HEADER; i++) T_EQ(got[i], want[i]);
    for (int i = SYMM_WIRE_HEADER; i < LEN; i++) T_EQ(got[i], 0xee); /* writes no more */
}

static void same(const symm_wire_msg *a, const symm_wire_msg *b) {
    T_EQ(a->type, b->type);
    T_EQ(a->nfds, b->nfds);
    T_EQ(a->bytes, b->bytes);
    T_EQ(a->from, b->from);
    T_EQ(a->to, b->to);
    T_CHECK(a->nonce == b->nonce);
}

static void what_was_put_is_parsed(void) {
    static const uint64_t values[] = {0,      1,          0x7f,       0x80,       0xff,
                                      0x1234, 0x7fffffff, 0x80000000, UINT32_MAX, UINT64_MAX};
    const int n = sizeof values / sizeof *values;
    uint8_t buf[SYMM_WIRE_HEADER + 256] = {0};
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            symm_wire_msg out, in = {.type = (uint16_t)values[i],
                                     .nfds = (uint16_t)values[j],
                                     .bytes = (uint8_t)values[i],
                                     .from = (uint32_t)values[j],
                                     .to = (uint32_t)values[i],
                                     .nonce = values[j] ^ values[i] << 32};
            symm_wire_put(&in, buf + j % 3); /* at odd addresses too */
            T_CHECK(parsed(buf + j % 3, SYMM_WIRE_HEADER + in.bytes, &out) == NULL);
            same(&in, &out);
        }
}

static void every_truncation_is_refused(void) {
    uint8_t buf[LEN];
    message(buf);
    refused(NULL, 0, 4096, UINT16_MAX, "shorter");
    refused(NULL, LEN, 4096, UINT16_MAX, "shorter");
    for (size_t len = 0; len < LEN; len++) {
        uint8_t *cut =
            malloc(len + 1); /* ends where the message ends: reading on is seen by a sanitizer */
        T_CHECK(cut != NULL);
        memcpy(cut + 1, buf, len);
        refused(cut + 1, len, 4096, UINT16_MAX,
                len < SYMM_WIRE_HEADER ? "shorter than a header" : "length field");
        free(cut);
    }
}

static void surplus_bytes_are_refused(void) {
    uint8_t buf[LEN + 8] = {0};
    message(buf);
    for (size_t len = LEN + 1; len <= sizeof buf; len++)
        refused(buf, len, 4096, UINT16_MAX, "length field");
}

static void every_wrong_byte_of_a_checked_field_is_refused(void) {
    static const struct {
        int from, to;
        const char *why;
    } fields[] = {
        {0, 4, "not a message"}, {4, 6, "version"}, {10, 12, "reserved"}, {12, 16, "length field"}};
    symm_wire_msg m;
    uint8_t buf[LEN];
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
        for (int i = fields[f].from; i < fields[f].to; i++)
            for (int bit = 0; bit < 8; bit++) {
                message(buf);
                buf[i] ^= (uint8_t)(1 << bit);
                refused(buf, LEN, SIZE_MAX, UINT16_MAX, fields[f].why);
                buf[i] ^= (uint8_t)(1 << bit);
                T_CHECK(parsed(buf, LEN, &m) == NULL);
            }
}

static void limits_of_the_caller_hold(void) {
    symm_wire_msg m;
    uint8_t buf[LEN];
    message(buf);
    T_CHECK(symm_wire_parse(buf, LEN, 8, 0x0304, &m) == NULL); /* exactly at both */
    refused(buf, LEN, 7, 0x0304, "payload");
    refused(buf, LEN, 0, 0x0304, "payload");
    refused(buf, LEN, 8, 0x0303, "file descriptors");
    refused(buf, LEN, 8, 0, "file descriptors");
}

static void lengths_beyond_32_bits_do_not_wrap(void) {
#if SIZE_MAX > UINT32_MAX
    uint8_t buf[LEN];
    message(buf);
    refused(buf, (size_t)LEN + (1ull << 32), SIZE_MAX, UINT16_MAX,
            "length field"); /* only the header is read */
#else
    T_SKIP("lengths have 32 bits here");
#endif
}

/* The same header where the payload has not come yet. */
static void a_header_is_read_without_its_payload(void) {
    symm_wire_msg m, before;
    uint8_t buf[LEN];
    message(buf);
    T_CHECK(symm_wire_head(buf, 8, 0x0304, &m) == NULL);
    same(&m, &sample);
    memset(&m, 0x77, sizeof m);
    before = m;
    T_MSG(symm_wire_head(buf, 7, 0x0304, &m), "payload");
    T_MSG(symm_wire_head(buf, 8, 0x0303, &m), "file descriptors");
    for (int i = 0; i < 12; i++) {
        if (i >= 6 && i < 10) continue; /* type and number of fds */
        buf[i] ^= 1;
        T_CHECK(symm_wire_head(buf, SIZE_MAX, UINT16_MAX, &m) != NULL);
        buf[i] ^= 1;
    }
    T_EQ(memcmp(&m, &before, sizeof m), 0);
}

/* Where a rank or a root listens, in an id or among the addresses of ranks. */
static void addresses_are_bytes_and_text(void) {
    struct sockaddr_storage in = {.ss_family = AF_INET}, out;
    struct sockaddr_in *a4 = (struct sockaddr_in *)&in;
    struct sockaddr_in6 *a6 = (struct sockaddr_in6 *)&in;
    uint8_t raw[SYMM_TCP_ADDRESS];
    char text[80];
    socklen_t len;
    a4->sin_port = htons(4711);
    a4->sin_addr.s_addr = htonl(0x0a000002);
    symm_tcp_address_put(&in, raw);
    T_EQ(raw[0], 4);
    T_CHECK(!symm_tcp_address_get(raw, &out, &len));
    T_EQ(len, sizeof *a4);
    T_EQ(memcmp(&in, &out, sizeof *a4), 0);
    T_STREQ(symm_tcp_address_text(&out, text, sizeof text), "10.0.0.2:4711");
    memset(&in, 0, sizeof in);
    a6->sin6_family = AF_INET6;
    a6->sin6_port = htons(65535);
    a6->sin6_scope_id = 0x12345678;
    T_EQ(inet_pton(AF_INET6, "fe80::1:2", &a6->sin6_addr), 1);
    symm_tcp_address_put(&in, raw);
    T_EQ(raw[0], 6);
    T_CHECK(!symm_tcp_address_get(raw, &out, &len));
    T_EQ(len, sizeof *a6);
    T_EQ(memcmp(&in, &out, sizeof *a6), 0);
    T_STREQ(symm_tcp_address_text(&out, text, sizeof text), "[fe80::1:2]:65535");
    raw[0] = 5;
    T_STREQ(symm_tcp_address_get(raw, &out, &len), "unknown address family");
    raw[0] = 6;
    raw[2] = raw[3] = 0;
    T_STREQ(symm_tcp_address_get(raw, &out, &len), "port 0");
}

T_MAIN(T(bytes_on_the_wire_are_fixed), T(what_was_put_is_parsed), T(every_truncation_is_refused),
       T(surplus_bytes_are_refused), T(every_wrong_byte_of_a_checked_field_is_refused),
       T(limits_of_the_caller_hold), T(lengths_beyond_32_bits_do_not_wrap),
       T(a_header_is_read_without_its_payload), T(addresses_are_bytes_and_text))

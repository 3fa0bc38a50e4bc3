/* fuzz_place.c - libFuzzer entry for the placement engine: the first byte chooses the fit and the
 * words, every four bytes behind it are a call, made on the engine and on the naive model of
 * place_kit.h. Both must answer alike and hold the same pieces. */
#include <stdint.h>
#include <stdlib.h>

static void pk_require(int ok) {
    if (!ok) abort();
}

#include "../kit/place_kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CALLS = 2000 };
#define FAR (1ull << 50)

/* Offsets of 16 bits, sizes of 8; off names a block where the call wants one and there is one. */
static void call(symm_place *p, pk_model *m, const uint8_t *d) {
    uint64_t off = (d[1] | (uint64_t)d[2] << 8) * SYMM_PLACE_UNIT, bytes = d[3] * (uint64_t)97,
             align = (uint64_t)SYMM_PLACE_UNIT << (d[1] & 7), block = off;
    uint64_t range = d[3] * (uint64_t)SYMM_PLACE_UNIT;
    if (m->n && m->piece[off / SYMM_PLACE_UNIT % (unsigned)m->n].used)
        block = m->piece[off / SYMM_PLACE_UNIT % (unsigned)m->n].off;
    switch (d[0] % 8) {
    case 0: pk_require(symm_place_add(p, off, range) == pk_add(m, off, range)); break;
    case 1: pk_require(symm_place_cut(p, off, range) == pk_cut(m, off, range)); break;
    case 2:
        pk_require(symm_place_take_at(p, off, bytes, off) == pk_take_at(m, off, bytes, off));
        break;
    case 3: pk_require(symm_place_resize(p, block, bytes) == pk_resize(m, block, bytes)); break;
    case 5: pk_require(symm_place_split(p, block, range) == pk_split(m, block, range)); break;
    case 4: pk_require(symm_place_give(p, block) == pk_give(m, block)); break;
    default:
        pk_require(symm_place_take(p, bytes, align, off, NULL) == pk_take(m, bytes, align, off));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static pk_model m;
    if (size < 5) return 0;
    m.n = 0;
    m.fit = data[0] & 1;
    m.peak = m.peak_used = 0;
    symm_place *p = symm_place_new(m.fit);
    pk_require(p != NULL);
    if (data[0] & 4) /* with words of 64 bits */
        pk_require(!symm_place_add(p, FAR, SYMM_PLACE_UNIT) &&
                   !symm_place_cut(p, FAR, SYMM_PLACE_UNIT));
    if (data[0] & 2) pk_require(symm_place_add(p, 0, 1 << 24) == 0 && pk_add(&m, 0, 1 << 24) == 0);
    for (size_t i = 1, n = 0; i + 4 <= size && n < CALLS; i += 4, n++) {
        call(p, &m, data + i);
        if (n % 8 == 7) pk_compare(p, &m);
    }
    pk_compare(p, &m);
    symm_place_end(p);
    return 0;
}

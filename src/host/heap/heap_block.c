/* heap_block.c - blocks of a heap: taking and giving back. Any thread where heap.h says so; h->lock
 * inside. */
#include <errno.h>
#include <stdio.h>

#include "base/fail.h"
#include "host/coll/coll.h"
#include "host/comm/comm.h"
#include "host/window/space.h"
#include "heap_int.h"

/* A block's tag: owner, lane + 1, bytes of its red zone, and two bits. TAG_UNCOLLECTED: it waits
 * for symmHeapCollect. TAG_BUSY: a thread paints it without the lock, because it was taken or freed
 * just now. */
#define TAG(owner, lane, red) \
    ((uint64_t)(owner) | (uint64_t)((lane) + 1) << 8 | (uint64_t)(red) << 32)
#define TAG_OWNER       0xffull
#define TAG_UNCOLLECTED (1ull << 63)
#define TAG_BUSY        (1ull << 62)

static const char *const owner_name[] = {"the user", "an arena",        "a lane",  "a graph",
                                         "a vector", "a synced buffer", "the heap"};

static int tag_owner(uint64_t tag) {
    return (int)(tag & TAG_OWNER);
}
static int tag_lane(uint64_t tag) {
    return (int)(tag >> 8 & 0xffffff) - 1;
}
static uint64_t tag_red(uint64_t tag) {
    return tag >> 32 & 0x3fffffff;
}

int symm_heap_zone(const symm_heap *h, uint64_t off) {
    if (off < symm_zone_extent(&h->zone[SYMM_ZONE_SYM])) return SYMM_ZONE_SYM;
    if (off < h->reserve && off >= h->reserve - symm_zone_extent(&h->zone[SYMM_ZONE_LOCAL]))
        return SYMM_ZONE_LOCAL;
    return -1;
}

static void describe(const symm_heap *h, int zone, const symm_piece *piece, symm_block *b) {
    const symm_piece p = *piece;
    *b = (symm_block){.off = symm_zone_flip(h, zone, p.off, p.bytes),
                      .bytes = p.bytes - tag_red(p.tag),
                      .zone = zone,
                      .owner = tag_owner(p.tag),
                      .lane = tag_lane(p.tag),
                      .uncollected = p.tag & TAG_UNCOLLECTED ? SYMM_UNCOLLECTED
                                     : p.tag & TAG_BUSY      ? SYMM_UNCOLLECTED_BUSY
                                                             : 0,
                      .z = p.off,
                      .room = p.bytes};
}

int symm_heap_find(const symm_heap *h, uint64_t off, symm_block *b) {
    symm_piece p;
    const int zone = symm_heap_zone(h, off);
    SYMM_HEAP_LOCKED(h);
    if (zone < 0) return 0;
    const uint64_t z = symm_zone_flip(h, zone, off, 1);
    if (!symm_place_at(h->zone[zone].place, z, &p) || !p.used || p.off > z) return 0;
    describe(h, zone, &p, b);
    return 1;
}

/* ---- digest ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9fb21c651e98df25ull;
    return h ^ h >> 32;
}

void symm_heap_count(symm_heap *h, int op, uint64_t size, uint64_t align, int lane, uint64_t off,
                     const void *site) {
    SYMM_HEAP_LOCKED(h);
    SYMM_ASSERT(op >= SYMM_OP_ALLOC && op <= SYMM_OP_RESIZE && lane >= -1);
    /* What a graph held comes back in any thread, on each rank at another time. */
    if (h->closed) return;
    h->calls++;
    uint64_t d = mix(mix(h->digest, h->calls << 8 | (unsigned)op), size);
    d = mix(mix(d, align << 32 | (uint32_t)lane), off);
    h->digest = d;
    /* A sum over heaps, because the order of calls on different heaps changes no offset. */
    const uint64_t share = mix(h->id, d);
    symm_coll_note_heap(h->comm, share - h->share);
    h->share = share;
    const symm_entry e = {h->calls, d, symm_coll_issued(h->comm), size, align, off, op, lane};
    symm_ledger_note(h->ledger, &e, site);
}

/* ---- take ------------------------------------------------------------------------------------ */

/* The lowest place for a block of LOCAL with an aligned end. */
static uint64_t find_end(const symm_place *p, uint64_t bytes, uint64_t align) {
    symm_piece q;
    for (uint64_t z = 0; symm_place_at(p, z, &q); z = q.off + q.bytes) {
        const uint64_t end = symm_round_up(q.off + bytes, align);
        if (!q.used && end <= q.off + q.bytes) return end - bytes;
    }
    return SYMM_PLACE_NONE;
}

/* In LOCAL zone offsets run against addresses, so the end of what is placed must be aligned. A
 * multiple of the alignment is taken, and what lies behind the block's last byte is given back. If
 * none fits, there may still be a hole for the block alone. could_fit has the same rule, else the
 * caller would be told to grow although that does not help. */
static uint64_t take_local(symm_heap *h, uint64_t bytes, uint64_t align, uint64_t tag, int *why) {
    symm_place *p = h->zone[SYMM_ZONE_LOCAL].place;
    SYMM_ASSERT(bytes && bytes % SYMM_PLACE_UNIT == 0 && align % SYMM_PLACE_UNIT == 0);
    const uint64_t whole = symm_round_up(bytes, align);
    uint64_t z = symm_place_take(p, whole, align, tag, why);
    if (whole == bytes || (z == SYMM_PLACE_NONE && *why == ENOMEM)) return z;
    if (z != SYMM_PLACE_NONE) {
        symm_place_give(p, z);
        z += whole - bytes;
    } else {
        z = find_end(p, bytes, align);
        if (z == SYMM_PLACE_NONE) return z;
    }
    if (symm_place_take_at(p, z, bytes, tag) == 0) return z;
    *why = ENOMEM;
    return SYMM_PLACE_NONE;
}

static uint64_t take(symm_heap *h, int zone, uint64_t bytes, uint64_t align, uint64_t tag,
                     int *why) {
    return zone == SYMM_ZONE_LOCAL ? take_local(h, bytes, align, tag, why)
                                   : symm_place_take(h->zone[zone].place, bytes, align, tag, why);
}

static symmResult_t check_take(const symm_heap *h, uint64_t bytes, uint64_t align, unsigned flags) {
    if (flags & ~SYMM_ALLOC_LOCAL)
        return SYMM_ERR(symmInvalidArgument, "flags=%u: must be SYMM_ALLOC_SYM or SYMM_ALLOC_LOCAL",
                        flags);
    if (align & (align - 1))
        return SYMM_ERR(symmInvalidArgument, "align=%llu: must be 0 or a power of two",
                        (unsigned long long)align);
    if (align > h->granularity)
        return SYMM_ERR(symmInvalidArgument, "align=%llu: more than the granularity, %llu",
                        (unsigned long long)align, (unsigned long long)h->granularity);
    if (bytes > h->reserve)
        return SYMM_ERR(symmOutOfMemory, "bytes=%llu: heap %s has addresses for %llu",
                        (unsigned long long)bytes, h->name, (unsigned long long)h->reserve);
    return symmSuccess;
}

/* Whether a block of that size would fit if memory lay behind every address that this zone could
 * get. With the lock. */
static int could_fit(const symm_heap *h, int zone, uint64_t bytes, uint64_t align) {
    const uint64_t limit =
        h->reserve - (zone == SYMM_ZONE_SYM ? h->local_extent : h->zone[SYMM_ZONE_SYM].extent);
    uint64_t at = 0;
    symm_piece p;
    for (;;) { /* from block to block: what is between, except graph ranges, is or could be free */
        int found = symm_place_at(h->zone[zone].place, at, &p);
        while (found && !p.used) found = symm_place_at(h->zone[zone].place, p.off + p.bytes, &p);
        symm_part next = found ? (symm_part){p.off, p.bytes} : (symm_part){limit, 0};
        const symm_part range = symm_heap_next_graph_range(h, zone, at);
        if (range.off < next.off) next = range;
        /* As blocks are placed: in SYM the beginning is aligned, in LOCAL, which runs against
         * addresses, the end. */
        const uint64_t end = zone == SYMM_ZONE_SYM ? symm_round_up(at, align) + bytes
                                                   : symm_round_up(at + bytes, align);
        if (end <= next.off) return 1;
        if (!next.bytes) return 0;
        at = next.off + next.bytes;
    }
}

static symmResult_t no_place(const symm_heap *h, int zone, uint64_t bytes, uint64_t align,
                             int why) {
    const symm_zone *z = &h->zone[zone];
    const char *name = zone == SYMM_ZONE_SYM ? "SYM" : "LOCAL";
    symm_place_stats s;
    char text[256];
    if (why == ENOMEM)
        return SYMM_ERR(symmOutOfMemory, "no memory for the record of a block of heap %s", h->name);
    symm_place_measure(z->place, &s);
    if (!could_fit(h, zone, bytes, align))
        return SYMM_ERR(symmOutOfMemory,
                        "%llu bytes do not fit in zone %s of heap %s, and growing would not help: "
                        "its zones use %llu of %llu bytes of addresses",
                        (unsigned long long)bytes, name, h->name,
                        (unsigned long long)(h->zone[0].extent + h->zone[1].extent),
                        (unsigned long long)h->reserve);
    snprintf(
        text, sizeof text,
        "%llu bytes do not fit in zone %s of heap %s: %llu of its %llu bytes are free, %llu in "
        "one piece (symmHeapGrow)",
        (unsigned long long)bytes, name, h->name, (unsigned long long)s.free,
        (unsigned long long)z->bytes, (unsigned long long)s.largest);
    symm_status_adopt(text); /* expected, so no warning is logged */
    return symmNeedGrow;
}

static void mark(symm_heap *h, const symm_block *b, uint64_t bit, int on) {
    symm_place *p = h->zone[b->zone].place;
    uint64_t tag = 0;
    const uint64_t room = symm_place_block(p, b->z, &tag);
    SYMM_HEAP_LOCKED(h);
    SYMM_ASSERT(room == b->room && (tag & bit ? !on : on));
    symm_place_set_tag(p, b->z, on ? tag | bit : tag & ~bit);
}

/* Guard mode. The block is marked as busy because its red zone is not painted yet. */
static void guard_taken(symm_heap *h, const symm_block *b) {
    symm_guard_warn(h, &(symm_spot){.off = b->off, .bytes = b->room, .poison = 1});
    (void)symm_guard_paint(h, b->off + b->bytes, b->room - b->bytes, 0);
    symm_heap_lock(h);
    mark(h, b, TAG_BUSY, 0);
    symm_heap_unlock(h);
}

symmResult_t symm_heap_take(symm_heap *h, uint64_t bytes, uint64_t align, unsigned flags, int owner,
                            int lane, const void *site, uint64_t *off) {
    const int zone = flags & SYMM_ALLOC_LOCAL ? SYMM_ZONE_LOCAL : SYMM_ZONE_SYM;
    int why = ENOSPC;
    SYMM_TRY(check_take(h, bytes, align, flags));
    if (align < SYMM_PLACE_UNIT) align = SYMM_PLACE_UNIT;
    const int red = h->guard && owner != SYMM_OWNER_ARENA;
    const uint64_t room = symm_round_up(red ? bytes + SYMM_RED_ZONE : bytes, SYMM_PLACE_UNIT);
    const uint64_t tag = TAG(owner, lane, red ? room - bytes : 0);
    symm_heap_lock(h);
    const uint64_t z = take(h, zone, room, align, h->guard ? tag | TAG_BUSY : tag, &why);
    if (__builtin_expect(z == SYMM_PLACE_NONE, 0)) {
        symmResult_t r = no_place(h, zone, room, align, why);
        symm_heap_unlock(h);
        return r;
    }
    *off = symm_zone_flip(h, zone, z, room);
    SYMM_ASSERT(*off % align == 0 && symm_heap_zone(h, *off) == zone);
    if (zone == SYMM_ZONE_SYM) symm_heap_count(h, SYMM_OP_ALLOC, bytes, align, lane, *off, site);
    symm_heap_unlock(h);
    if (__builtin_expect(h->guard, 0))
        guard_taken(h,
                    &(symm_block){.off = *off, .bytes = bytes, .zone = zone, .z = z, .room = room});
    return symmSuccess;
}

/* ---- pieces whose ends change ---------------------------------------------------------------- */

int symm_heap_take_at(symm_heap *h, uint64_t off, uint64_t bytes, int owner) {
    const uint64_t z = symm_zone_flip(h, SYMM_ZONE_LOCAL, off, bytes), tag = TAG(owner, -1, 0);
    symm_heap_lock(h);
    const int bad = symm_heap_zone(h, off) != SYMM_ZONE_LOCAL ||
                    symm_place_take_at(h->zone[SYMM_ZONE_LOCAL].place, z, bytes,
                                       h->guard ? tag | TAG_BUSY : tag);
    symm_heap_unlock(h);
    if (!bad && h->guard)
        guard_taken(
            h, &(symm_block){
                   .off = off, .bytes = bytes, .zone = SYMM_ZONE_LOCAL, .z = z, .room = bytes});
    return bad ? -1 : 0;
}

int symm_heap_part(symm_heap *h, uint64_t off, int owner) {
    symm_block b;
    symm_heap_lock(h);
    int bad = !symm_heap_find(h, off, &b) || b.owner != owner || b.uncollected ||
              b.bytes != b.room || b.zone != SYMM_ZONE_LOCAL;
    if (!bad && b.off != off)
        bad = symm_place_split(h->zone[b.zone].place, b.z, b.room - (off - b.off));
    symm_heap_unlock(h);
    return bad ? -1 : 0;
}

int symm_heap_hole(symm_heap *h, uint64_t off, uint64_t *begin, uint64_t *end) {
    symm_piece p = {0};
    symm_heap_lock(h);
    int found = symm_heap_zone(h, off) == SYMM_ZONE_LOCAL;
    const uint64_t z = symm_zone_flip(h, SYMM_ZONE_LOCAL, off, 1);
    found = found && symm_place_at(h->zone[SYMM_ZONE_LOCAL].place, z, &p) && !p.used && p.off <= z;
    symm_heap_unlock(h);
    if (!found) return 0;
    *begin = symm_zone_flip(h, SYMM_ZONE_LOCAL, p.off, p.bytes);
    *end = *begin + p.bytes;
    return 1;
}

/* ---- give ------------------------------------------------------------------------------------ */

/* Why that owner cannot free a block at off. With the lock. */
static symmResult_t refuse(const symm_heap *h, uint64_t off, int owner) {
    symm_block b;
    if (!symm_heap_find(h, off, &b))
        return SYMM_ERR(symmInvalidArgument,
                        "offset %llu of heap %s is not in a block: freed already, or never "
                        "allocated",
                        (unsigned long long)off, h->name);
    if (b.off != off)
        return SYMM_ERR(symmInvalidArgument,
                        "offset %llu of heap %s is inside the block of %llu bytes that begins at "
                        "offset %llu%s%s",
                        (unsigned long long)off, h->name, (unsigned long long)b.bytes,
                        (unsigned long long)b.off, b.owner != owner ? " and belongs to " : "",
                        b.owner != owner ? owner_name[b.owner] : "");
    if (b.uncollected == SYMM_UNCOLLECTED)
        return SYMM_ERR(symmInvalidArgument,
                        "the block at offset %llu of heap %s is freed already: it waits for "
                        "symmHeapCollect",
                        (unsigned long long)off, h->name);
    if (b.uncollected)
        return SYMM_ERR(
            symmInvalidArgument,
            "the block at offset %llu of heap %s is being taken or freed by another thread",
            (unsigned long long)off, h->name);
    return SYMM_ERR(symmInvalidArgument,
                    "the block at offset %llu of heap %s belongs to %s, not to %s",
                    (unsigned long long)off, h->name, owner_name[b.owner], owner_name[owner]);
}

/* Guard mode. The block is marked as busy, so it cannot be freed twice meanwhile. */
static symmResult_t guard_given(symm_heap *h, const symm_block *b) {
    const symm_spot red = {
        .off = b->off + b->bytes, .bytes = b->room - b->bytes, .block = b->off, .asked = b->bytes};
    symmResult_t r = symm_guard_freed(h, &red);
    (void)symm_guard_paint(h, b->off, b->room, 1);
    return r;
}

/* In guard mode, and in LOCAL. With the lock, which guard mode releases in between. */
static symmResult_t give_found(symm_heap *h, uint64_t off, int owner, const void *site,
                               uint64_t *bytes) {
    symm_block b;
    symmResult_t r = symmSuccess;
    if (!symm_heap_find(h, off, &b) || b.off != off || b.uncollected || b.owner != owner)
        return refuse(h, off, owner);
    if (h->guard) {
        mark(h, &b, TAG_BUSY, 1);
        symm_heap_unlock(h);
        r = guard_given(h, &b);
        symm_heap_lock(h);
    }
    symm_place_give(h->zone[b.zone].place, b.z);
    if (b.zone == SYMM_ZONE_SYM) symm_heap_count(h, SYMM_OP_FREE, b.bytes, 0, b.lane, off, site);
    *bytes = b.bytes;
    return r;
}

/* Zone offsets of SYM are the heap's, so one look-up is enough. With the lock. */
static symmResult_t give_sym(symm_heap *h, uint64_t off, int owner, const void *site,
                             uint64_t *bytes) {
    uint64_t tag = 0;
    const uint64_t room =
        symm_place_give_if(h->zone[SYMM_ZONE_SYM].place, off,
                           TAG_OWNER | TAG_UNCOLLECTED | TAG_BUSY, (uint64_t)owner, &tag);
    if (__builtin_expect(!room, 0)) return refuse(h, off, owner);
    *bytes = room - tag_red(tag);
    symm_heap_count(h, SYMM_OP_FREE, *bytes, 0, tag_lane(tag), off, site);
    return symmSuccess;
}

symmResult_t symm_heap_give(symm_heap *h, uint64_t off, int owner, const void *site,
                            uint64_t *bytes) {
    uint64_t had = 0;
    symm_heap_lock(h);
    symmResult_t r = !h->guard && symm_heap_zone(h, off) == SYMM_ZONE_SYM
                         ? give_sym(h, off, owner, site, &had)
                         : give_found(h, off, owner, site, &had);
    symm_heap_unlock(h);
    if (bytes && had) *bytes = had;
    return r;
}

void symm_heap_give_later(symm_heap *h, uint64_t off) {
    symm_block b;
    symm_heap_lock(h);
    if (symm_heap_find(h, off, &b) && b.off == off && !b.uncollected) {
        mark(h, &b, TAG_UNCOLLECTED, 1);
        h->uncollected_bytes += b.room;
    }
    symm_heap_unlock(h);
}

symmResult_t symm_heap_block(symm_heap *h, uint64_t off, uint64_t *bytes, int *owner, int *lane) {
    symm_block b;
    symmResult_t r = symmSuccess;
    symm_heap_lock(h);
    if (!symm_heap_find(h, off, &b) || b.off != off) {
        r = SYMM_ERR(symmInvalidArgument, "no block of heap %s begins at offset %llu", h->name,
                     (unsigned long long)off);
    } else {
        if (bytes) *bytes = b.bytes;
        if (owner) *owner = b.owner;
        if (lane) *lane = b.lane;
    }
    symm_heap_unlock(h);
    return r;
}

static uint64_t room_of(uint64_t bytes) {
    return symm_round_up(bytes, SYMM_PLACE_UNIT);
}

/* Makes sure that the placement has memory for the first block; there may be no memory behind it
 * yet. -1: no memory. */
static int try_first(symm_place *p) {
    symm_piece hole;
    const int known = symm_place_at(p, 0, &hole);
    if (!known && symm_place_add(p, 0, SYMM_PLACE_UNIT)) return -1;
    const int bad = symm_place_take_at(p, 0, SYMM_PLACE_UNIT, 0);
    if (!bad) symm_place_give(p, 0);
    if (!known) symm_place_cut(p, 0, SYMM_PLACE_UNIT);
    return bad;
}

symmResult_t symm_heap_try_resize(symm_heap *h, uint64_t bytes) {
    symm_place *p = h->zone[SYMM_ZONE_SYM].place;
    const uint64_t room = room_of(bytes);
    symm_heap_lock(h);
    const uint64_t was = symm_place_block(p, 0, NULL);
    int bad = SYMM_FAIL_HERE(vec_size);
    if (!bad && room && !was) bad = try_first(p);
    if (!bad && room && room < was) {
        bad = symm_place_resize(p, 0, room);
        if (!bad) symm_place_resize(p, 0, was);
    }
    symm_heap_unlock(h);
    if (bad) return SYMM_ERR(symmOutOfMemory, "no memory for the size of vector %s", h->name);
    return symmSuccess;
}

symmResult_t symm_heap_resize(symm_heap *h, uint64_t bytes, const void *site) {
    symm_place *p = h->zone[SYMM_ZONE_SYM].place;
    const uint64_t room = room_of(bytes);
    const uint64_t tag = TAG(SYMM_OWNER_VEC, -1, room - bytes);
    uint64_t old;
    int bad = 0;
    symm_heap_lock(h);
    const uint64_t was = symm_place_block(p, 0, &old);
    if (!room && was)
        bad = !symm_place_give(p, 0);
    else if (room && !was)
        bad = symm_place_take_at(p, 0, room, tag);
    else if (room && room != was)
        bad = symm_place_resize(p, 0, room);
    if (!bad && room) symm_place_set_tag(p, 0, tag);
    if (!bad) symm_heap_count(h, SYMM_OP_RESIZE, bytes, 0, -1, 0, site);
    symm_heap_unlock(h);
    if (bad) return SYMM_ERR(symmOutOfMemory, "no memory for the size of vector %s", h->name);
    return symmSuccess;
}

/* ---- for owners whose blocks hold smaller ones ----------------------------------------------- */

uint64_t symm_heap_room(const symm_heap *h, unsigned flags) {
    symm_place_stats s;
    symm_heap_lock((symm_heap *)h);
    symm_place_measure(h->zone[flags & SYMM_ALLOC_LOCAL ? SYMM_ZONE_LOCAL : SYMM_ZONE_SYM].place,
                       &s);
    symm_heap_unlock((symm_heap *)h);
    const uint64_t red = h->guard ? SYMM_RED_ZONE : 0;
    return s.largest > red ? s.largest - red : 0;
}

uint64_t symm_heap_calls(const symm_heap *h) {
    return h->calls;
}

void symm_heap_note(symm_heap *h, int freed, uint64_t bytes, int lane, uint64_t off,
                    const void *site) {
    symm_heap_lock(h);
    symm_heap_count(h, freed ? SYMM_OP_FREE : SYMM_OP_ALLOC, bytes, 0, lane, off, site);
    symm_heap_unlock(h);
}

void symm_heap_set_inside(symm_heap *h, int owner, symm_heap_inside find, void *arg) {
    symm_heap_lock(h);
    h->inside[owner].find = find;
    h->inside[owner].arg = arg;
    symm_heap_unlock(h);
}

void symm_heap_set_access(symm_heap *h, int owner, symm_heap_access access, void *arg) {
    symm_heap_lock(h);
    h->inside[owner].access = access;
    h->inside[owner].access_arg = arg;
    symm_heap_unlock(h);
}

void symm_heap_set_check(symm_heap *h, int owner, symm_heap_look check, void *arg) {
    symm_heap_lock(h);
    h->inside[owner].check = check;
    h->inside[owner].check_arg = arg;
    symm_heap_unlock(h);
}

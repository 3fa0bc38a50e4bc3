/* memlane_set.c - the set of a heap's lanes: how calls enter, and its end with the last reference.
 * The communicator's user thread; after the communicator's end any thread that holds
 * symm_memplan_lock_dead. */
#include "memlane.h"

#include <stdlib.h>

#include "base/handle.h"
#include "host/comm/group.h"
#include "host/launch/launch.h"
#include "memplan.h"

/* ---- the end --------------------------------------------------------------------------------- */

static void end_set(symm_memlanes *s) {
    symm_memuse_end(s);
    symm_memguard_end(s);
    for (int z = 0; z < SYMM_MEM_ZONES; z++) symm_mempool_end(&s->pool[z]);
    symm_memtable_end(&s->table);
    free(s->lanes);
    free(s);
}

void symm_memlanes_unref(symm_memlanes *s) {
    SYMM_ASSERT(s->refs > 0);
    if (--s->refs) return;
    SYMM_ASSERT(!s->alive && !s->plans && !s->regions);
    if (symm_handle_open(SYMM_KIND_HEAP, s->handle)) /* launched after the last lane ended */
        (void)symm_memuse_reach(s, NULL);
    SYMM_ASSERT(s->comm->lanes.sets);
    for (symm_memlanes **at = &s->comm->lanes.sets; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    if (!s->comm->lanes.sets) symm_launch_observe(s->comm, NULL);
    symm_heap_set_guest(s->heap, NULL);
    symm_heap_set_inside(s->heap, SYMM_OWNER_LANE, NULL, NULL);
    symm_heap_set_inside(s->heap, SYMM_OWNER_GRAPH, NULL, NULL);
    symm_heap_set_access(s->heap, SYMM_OWNER_GRAPH, NULL, NULL);
    symm_heap *heap = s->heap;
    end_set(s);
    symm_heap_unref(heap);
}

/* ---- entering -------------------------------------------------------------------------------- */

symmResult_t symm_memlane_no_group(const char *call) {
    if (__builtin_expect(!symm_group_open(), 1)) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage,
                    "%s: not inside a group, because its calls are on no stream before "
                    "symmGroupEnd",
                    call);
}

symm_memlane *symm_memlane_peek(symmLane_t handle) {
    return symm_handle_peek(SYMM_KIND_LANE, handle);
}

symmResult_t symm_memlane_unknown(symmLane_t handle, const char *call) {
    return SYMM_ERR(symmInvalidArgument, "%s: lane=%p is not a live lane", call, (void *)handle);
}

symmResult_t symm_memlane_enter(symmLane_t handle, const char *call, symm_memlane **out) {
    symm_heap *heap;
    symm_memlane *l = symm_memlane_peek(handle);
    if (__builtin_expect(!l, 0)) return symm_memlane_unknown(handle, call);
    SYMM_TRY(symm_memlane_no_group(call));
    SYMM_TRY(symm_heap_enter(l->set->handle, 1, &heap));
    if (__builtin_expect(symm_memlane_peek(handle) != l, 0)) { /* ended before this thread's turn */
        symm_heap_leave(heap);
        return symm_memlane_unknown(handle, call);
    }
    SYMM_CHECK(symm_memlane_check(l));
    *out = l;
    return symmSuccess;
}

void symm_memlane_leave(symm_memlane *l) {
    SYMM_CHECK(symm_memlane_check(l));
    symm_heap_leave(l->set->heap);
}

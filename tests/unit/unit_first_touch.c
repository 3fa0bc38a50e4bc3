/* unit_first_touch.c - the pages that a rank polls are there before any peer writes: made by
 * their owner. Ranks are threads. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "host/comm/comm.h"
#include "base/handle.h"
#include "t.h"

enum { MOST = 5, PAGE = 4096 };

/* How many of the pages of a span have no memory yet. */
static int missing(const char *from, uint64_t bytes) {
    const uintptr_t begin = (uintptr_t)from & ~(uintptr_t)(PAGE - 1);
    const size_t n = ((uintptr_t)from + bytes - begin + PAGE - 1) / PAGE;
    unsigned char there[n];
    int lack = 0;
    T_EQ(mincore((void *)begin, n * PAGE, there), 0);
    for (size_t i = 0; i < n; i++) lack += !(there[i] & 1);
    return lack;
}

static void check_rank(const symm_comm *c, int ctas) {
    const symm_scratch *s = &c->calls.proto.scratch;
    const char *mine = (const char *)c->ctl;
    T_CHECK(mine != NULL);
    for (int b = 0; b < ctas; b++)
        for (int r = 0; r < c->nranks; r++)
            T_EQ(missing((const char *)&c->ctl->inbox[b][r], sizeof c->ctl->inbox[b][r]), 0);
    for (unsigned i = 0; i < 4u * (unsigned)c->nranks; i++)
        T_EQ(missing(mine + s->host.packet_off + i * s->host.packet_slot, SYMM_PACKET_STRIDE), 0);
    /* What is there costs memory: staging, for messages of megabytes, waits for its first use. */
    T_CHECK(missing(mine + s->host.stage_off + s->host.stage_bytes / 2, 1u << 20) > 0);
}

static void check(int n, int ctas) {
    symmComm_t comm[MOST];
    T_OK(symmCommInitAll(comm, n, NULL));
    for (int r = 0; r < n; r++) {
        const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm[r]);
        T_CHECK(c != NULL);
        check_rank(c, ctas);
    }
    for (int r = 0; r < n; r++) T_OK(symmCommDestroy(comm[r]));
}

static void what_a_rank_polls_is_there(void) {
    check(2, 1);
    check(MOST, 1);
}

static void the_inbox_of_every_cta_is_there(void) {
    setenv("SYMM_CTAS", "9", 1);
    check(3, 9);
}

T_MAIN(T(what_a_rank_polls_is_there), T(the_inbox_of_every_cta_is_there))

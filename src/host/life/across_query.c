/* across_query.c - what a program asks of a communicator over several domains, and of the domains
 * of any. Any thread: each call pins what it asks. */
#include <stdio.h>

#include "base/sized.h"
#include "symm_domains.h"

#include "host/comm/comm.h"
#include "host/across/across_gpu.h"
#include "across_end.h"

/* Of one domain. */
static symmResult_t count_hosts(symmComm_t comm, int *hosts) {
    symm_comm *c;
    SYMM_TRY(symm_comm_visit_made(comm, &c));
    *hosts = c->hosts;
    symm_comm_unvisit(c);
    return symmSuccess;
}

symmResult_t symmDomainQuery(symmComm_t comm, symmDomainInfo_t *info) {
    symm_across *s;
    if (!symm_sized_holds(info, sizeof *info))
        return SYMM_ERR(symmInvalidArgument, "info is %s", info ? SYMM_NO_SIZE : "NULL");
    symmDomainInfo_t i = {.size = info->size, .domains = 1};
    if (!symm_outer_is(comm)) {
        SYMM_TRY(symmCommCount(comm, &i.ranks));
        SYMM_TRY(symmCommUserRank(comm, &i.place));
        SYMM_TRY(count_hosts(comm, &i.hosts));
        symm_sized_answer(info, &i, sizeof i);
        return symmSuccess;
    }
    SYMM_TRY(symm_across_get(comm, &s));
    i.domains = s->map.ndomains;
    i.domain = s->map.domain;
    i.ranks = s->map.size;
    i.place = s->map.place;
    snprintf(i.mover, sizeof i.mover, "%s", s->mover);
    const symmResult_t r = count_hosts(s->outer.inner, &i.hosts);
    symm_outer_put(comm);
    if (!r) symm_sized_answer(info, &i, sizeof i);
    return r;
}

static symmResult_t no_rank(int rank, int nranks) {
    return SYMM_ERR(symmInvalidArgument, "rank=%d: must be 0 to %d", rank, nranks - 1);
}

symmResult_t symmDomainOf(symmComm_t comm, int rank, int *domain, int *place) {
    symm_across *s;
    int n;
    if (!symm_outer_is(comm)) {
        SYMM_TRY(symmCommCount(comm, &n));
        if (rank < 0 || rank >= n) return no_rank(rank, n);
        if (domain) *domain = 0;
        if (place) *place = rank;
        return symmSuccess;
    }
    SYMM_TRY(symm_across_get(comm, &s));
    const int bad = rank < 0 || rank >= s->map.nranks;
    if (!bad && domain) *domain = s->map.domain_of[rank];
    if (!bad && place) *place = s->map.place_of[rank];
    n = s->map.nranks;
    symm_outer_put(comm);
    return bad ? no_rank(rank, n) : symmSuccess;
}

symmResult_t symmCommDomain(symmComm_t comm, symmComm_t *inside) {
    symm_across *s;
    int n;
    if (!inside) return SYMM_ERR(symmInvalidArgument, "inside is NULL");
    if (!symm_outer_is(comm)) {
        SYMM_TRY(symmCommCount(comm, &n)); /* of one that lives */
        *inside = comm;
        return symmSuccess;
    }
    SYMM_TRY(symm_across_get(comm, &s));
    *inside = s->outer.inner;
    symm_outer_put(comm);
    return symmSuccess;
}

symmResult_t symm_across_info(symmComm_t comm, symmCommInfo_t *info) {
    symm_across *s;
    SYMM_TRY(symm_across_get(comm, &s));
    symmCommInfo_t i = {.size = sizeof i};
    const symmResult_t r = symmCommQuery(s->outer.inner, &i);
    i.rank = s->map.rank;
    i.nranks = s->map.nranks;
    i.domainSize = s->map.size;
    symm_outer_put(comm);
    if (!r) symm_sized_answer(info, &i, sizeof i);
    return r;
}

/* Nothing else looks while kernels wait for other domains: what is found ends them. If a thread is
 * in a call, that one looks. */
static void look_at_gpus(symm_across *s) {
    if (pthread_mutex_trylock(&s->turn)) return;
    if (s->net) symm_across_say(s);
    symmResult_t r = s->net && !symm_across_known(s) ? symm_across_look(s, 0) : symmSuccess;
    if (r) (void)symm_across_fail(s, r);
    symm_across_leave(s);
}

symmResult_t symm_across_async(symmComm_t comm, symmResult_t *error) {
    symm_across *s;
    SYMM_TRY(symm_across_get(comm, &s));
    if (s->gpu) look_at_gpus(s);
    *error = symm_across_known(s);
    const symmResult_t r = *error ? symmSuccess : symmCommGetAsyncError(s->outer.inner, error);
    symm_outer_put(comm);
    return r;
}

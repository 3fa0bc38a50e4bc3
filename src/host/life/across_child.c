/* across_child.c - communicators made from one over several domains: split and shrink. Each domain
 * makes its part from its inner communicator; if the new one spans several domains again, its ranks
 * get a mover of their own. The thread inside that call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "host/across/across.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "transport/net/boot_net.h"
#include "across_end.h"
#include "comm_across.h"
#include "comm_make.h"

/* ---- the ranks of the new one ---------------------------------------------------------------- */

typedef struct {
    int n, rank;           /* rank: this one's in the new one */
    int *ranks;            /* [n] ranks[i], of the parent, is rank i of the new one */
    symm_domain_key *keys; /* [n] */
    symm_domains *map;     /* NULL: no memory for it, and this rank has an error */
    const char *gone;      /* [ranks of the parent] who is none of them; NULL: it is a split */
} members;

static void free_members(members *m) {
    if (m->map) symm_domains_free(m->map);
    free(m->map);
    free(m->keys);
    free(m->ranks);
    m->map = NULL;
    m->keys = NULL;
    m->ranks = NULL;
}

/* Room for all ranks of the parent, or for none. */
static symmResult_t alloc_members(const symm_across *s, members *m) {
    const size_t n = (size_t)s->map.nranks;
    m->ranks = SYMM_FAIL_ALLOC(across_members, malloc(n * sizeof *m->ranks));
    m->keys = malloc(n * sizeof *m->keys);
    symmResult_t r = m->ranks && m->keys
                         ? symm_across_new_map(s->map.nranks, &m->map)
                         : SYMM_ERR(symmOutOfMemory, "no memory to sort %zu ranks", n);
    if (r) free_members(m);
    return r;
}

/* ranks[] is there. Keys that are the parent's domains make domains of the same ranks. Returns how
 * many there are. */
static int sort(const symm_across *s, members *m) {
    for (int i = 0; i < m->n; i++) {
        m->keys[i] = (symm_domain_key){1, (uint64_t)s->map.domain_of[m->ranks[i]], 0};
        if (m->ranks[i] == s->map.rank) m->rank = i;
    }
    m->map->nranks = m->n;
    symm_domains_sort(m->keys, m->rank, 0, m->map);
    SYMM_ASSERT(m->map->ndomains <= s->map.ndomains && m->map->place < m->map->size);
    return m->map->ndomains;
}

/* ---- making ---------------------------------------------------------------------------------- */

typedef struct { /* by value, because a group makes the call later */
    symmComm_t comm;
    symmComm_t *out;
    symm_config_copy config;
    int color, key, flags;
    char gone[]; /* [ranks of the parent] shrink: 1, it is left out */
} child_args;

/* The parent's where the call says nothing. Parts are made in the call. ms: of its deadline. */
static symmResult_t child_config(const symm_across *s, const child_args *a, symmConfig_t *out,
                                 int64_t *ms) {
    symmConfig_t given, checked;
    const symm_config_copy none = {.given = 0};
    symm_comm *c;
    SYMM_TRY(symm_comm_visit(s->outer.inner, &c));
    const symmResult_t r = symm_config_check(symm_config_kept(&a->config, &given), &checked);
    *out = symm_config_child(c, r ? &none : &a->config);
    out->blocking = 1;
    *ms = out->timeoutMs == SYMM_CONFIG_UNDEF ? c->params.setup_timeout_ms : out->timeoutMs;
    symm_comm_unvisit(c);
    return r;
}

/* Whom a shrink keeps, in order; how many. */
static int list_left(const symm_across *s, const char *gone, int *ranks) {
    int n = 0;
    for (int r = 0; r < s->map.nranks; r++)
        if (!gone[r]) ranks[n++] = r;
    return n;
}

/* A mover of the members, and the exchange by it. */
static symmResult_t part(symm_across *s, const members *m, symm_net **net, symm_boot **boot) {
    SYMM_TRY(symm_across_follow(s));
    SYMM_TRY(symm_across_enter(s));
    symmResult_t r = s->net->ops->enter(s->net);
    if (!m->ranks) (void)list_left(s, m->gone, s->left);
    if (!r) r = s->net->ops->part(s->net, m->ranks ? m->ranks : s->left, m->n, net);
    if (!r) r = symm_boot_net_open(*net, m->rank, m->n, boot);
    symm_across_leave(s);
    return r;
}

/* This rank takes no part in an exchange, and tells the others, if it can reach them. */
static symmResult_t give_up(symm_net *net, symm_boot *boot, symmComm_t part_of, symmResult_t r) {
    char why[SYMM_ERR_TEXT];
    if (net) symm_boot_net_give_up(net, r);
    snprintf(why, sizeof why, "%s", symm_status_text());
    symm_boot_close(boot);
    if (net) net->ops->close(net, NULL);
    if (part_of) symmCommDestroy(part_of);
    symm_status_adopt(why);
    return r;
}

/* Of all parts one communicator. part_of: this rank's, or NULL with r and its text. Takes over that
 * and the map. */
static symmResult_t join(symm_across *s, members *m, symmComm_t part_of, symmResult_t r, int64_t ms,
                         symmComm_t *out) {
    char why[SYMM_ERR_TEXT];
    symm_net *net = NULL;
    symm_boot *boot = NULL;
    snprintf(why, sizeof why, "%s", symm_status_text());
    const symmResult_t meets = part(s, m, &net, &boot);
    if (meets) return give_up(net, boot, part_of, meets);
    if (r) symm_status_adopt(why);
    if (!m->map) return give_up(net, boot, part_of, r); /* no room to hear the others either */
    const symm_wait w = {.stage = "making a communicator over several domains",
                         .deadline_ns = symm_now_ns() + (uint64_t)ms * 1000000u};
    symm_domains *map = m->map;
    m->map = NULL;
    r = symm_across_open(boot, &w, r, map, part_of, net, out);
    symm_boot_close(boot);
    return r;
}

/* Whether the members are of several domains. */
static int are_several(const symm_across *s, members *m) {
    if (m->map) return sort(s, m) > 1;
    for (int r = 0; r < s->map.nranks; r++)
        if (!m->gone[r] && s->map.domain_of[r] != s->map.domain) return 1;
    return 0;
}

/* made: this domain's part, or NULL with r. */
static symmResult_t finish(symm_across *s, members *m, symmComm_t made, symmResult_t r, int64_t ms,
                           symmComm_t *out) {
    SYMM_ASSERT(m->map || (r && !made && m->gone));
    if (are_several(s, m)) return join(s, m, made, r, ms, out);
    if (!r) *out = made;
    return r;
}

/* ---- split ----------------------------------------------------------------------------------- */

typedef struct {
    int32_t color, key;
} wish;

/* Those of the color in order of (key, old rank). */
static void choose(const symm_across *s, const wish *all, int color, members *m) {
    m->n = 0;
    for (int r = 0; r < s->map.nranks; r++) {
        int at = m->n;
        if (all[r].color != color) continue;
        for (; at > 0 && all[m->ranks[at - 1]].key > all[r].key; at--)
            m->ranks[at] = m->ranks[at - 1];
        m->ranks[at] = r;
        m->n++;
    }
}

static symmResult_t split_status(const symm_across *s, const child_args *a, const wish *all,
                                 members *m, symmConfig_t *config, int64_t *ms) {
    if (!a->out) return SYMM_ERR(symmInvalidArgument, "newcomm is NULL");
    if (!all) return SYMM_ERR(symmOutOfMemory, "no memory to hear from %d ranks", s->map.nranks);
    SYMM_TRY(child_config(s, a, config, ms));
    return alloc_members(s, m);
}

/* What may fail on one rank alone fails before the ranks agree, and then on all. */
static symmResult_t split(symm_across *s, const child_args *a, wish *all, members *m) {
    const wish mine = {a->color, a->key};
    symmConfig_t config;
    symmComm_t made = NULL;
    int64_t ms = 0;
    SYMM_TRY(symm_across_agree(s, split_status(s, a, all, m, &config, &ms),
                               "could not begin to split the communicator"));
    SYMM_TRY(symm_across_share(s, &mine, all, sizeof mine));
    const symmResult_t r = symmCommSplit(s->outer.inner, a->color, a->key, &made, &config);
    if (a->color == SYMM_SPLIT_NOCOLOR) {
        if (!r) *a->out = NULL;
        return r;
    }
    choose(s, all, a->color, m);
    return finish(s, m, made, r, ms, a->out);
}

static symmResult_t split_job(void *args) {
    const child_args *a = args;
    symm_across *s;
    members m = {.n = 0};
    SYMM_TRY(symm_across_get(a->comm, &s));
    wish *all = SYMM_FAIL_ALLOC(across_wishes, malloc((size_t)s->map.nranks * sizeof *all));
    const symmResult_t r = split(s, a, all, &m);
    free(all);
    free_members(&m);
    symm_outer_put(a->comm);
    return r;
}

symmResult_t symm_across_split(symmComm_t comm, int color, int key, symmComm_t *newcomm,
                               const symmConfig_t *config) {
    child_args a = {.comm = comm, .out = newcomm, .color = color, .key = key};
    symm_config_keep(&a.config, config);
    return symm_group_run(symm_outer_inner(comm), SYMM_JOB_STAYS, split_job, &a, sizeof a);
}

/* ---- shrink ---------------------------------------------------------------------------------- */

/* The places of the own domain that are left out. How many. */
static int places_out(const symm_across *s, const char *gone, int *places) {
    int n = 0;
    for (int p = 0; p < s->map.size; p++)
        if (gone[symm_domain_rank(&s->map, s->map.domain, p)]) places[n++] = p;
    SYMM_ASSERT(n < s->map.size); /* not this rank */
    return n;
}

static symmResult_t shrink_status(const symm_across *s, const child_args *a, members *m,
                                  symmConfig_t *config, int64_t *ms) {
    const symmResult_t r = child_config(s, a, config, ms);
    if (!a->out) return SYMM_ERR(symmInvalidArgument, "newcomm is NULL");
    return r ? r : alloc_members(s, m);
}

/* A rank with an error takes part in what its domain does and in what crosses: so the others hear
 * of it, who would wait. That needs no memory that the communicator has not got. */
static symmResult_t shrink(symm_across *s, const child_args *a, members *m) {
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    symmComm_t made = NULL;
    int64_t ms = 0;
    int places[SYMM_MAX_RANKS];
    char why[SYMM_ERR_TEXT];
    symmResult_t r = symm_across_follow(s); /* a worker may be in a call of the inner one */
    if (!r) r = shrink_status(s, a, m, &config, &ms);
    snprintf(why, sizeof why, "%s", symm_status_text());
    const int n = places_out(s, a->gone, places);
    const symmResult_t inside =
        symm_comm_shrink_with(s->outer.inner, n ? places : NULL, n, &made, &config, a->flags, r);
    if (r) symm_status_adopt(why);
    m->gone = a->gone;
    for (int p = m->n = m->rank = 0; p < s->map.nranks; p++) {
        if (p == s->map.rank) m->rank = m->n;
        m->n += !a->gone[p];
    }
    if (m->ranks) (void)list_left(s, a->gone, m->ranks);
    return finish(s, m, made, r ? r : inside, ms, a->out);
}

static symmResult_t shrink_job(void *args) {
    const child_args *a = args;
    symm_across *s;
    members m = {.n = 0};
    if (a->flags & SYMM_SHRINK_ABORT) SYMM_TRY(symm_across_revoke(a->comm, 0));
    SYMM_TRY(symm_across_get(a->comm, &s));
    const symmResult_t r = shrink(s, a, &m);
    free_members(&m);
    symm_outer_put(a->comm);
    return r;
}

/* What is wrong with the list is wrong on all ranks, which pass the same one: none waits for
 * another. */
static symmResult_t read_list(const symm_across *s, const int *list, int n, int flags, char *gone) {
    if (flags & ~(SYMM_SHRINK_ABORT | SYMM_SHRINK_FAILED))
        return SYMM_ERR(symmInvalidArgument,
                        "flags=%d: must be 0 or SYMM_SHRINK_ABORT, over several domains", flags);
    if (flags & SYMM_SHRINK_FAILED)
        return SYMM_ERR(symmNotSupported,
                        "flags=%d: over several domains nobody finds out which ranks of the others "
                        "are gone (SYMM_SHRINK_FAILED): list them",
                        flags);
    if (n < 0) return SYMM_ERR(symmInvalidArgument, "nExclude=%d: must not be negative", n);
    if (n > 0 && !list)
        return SYMM_ERR(symmInvalidArgument, "excludeRanks is NULL, nExclude=%d", n);
    for (int i = 0; i < n; i++) {
        if (list[i] < 0 || list[i] >= s->map.nranks)
            return SYMM_ERR(symmInvalidArgument,
                            "excludeRanks[%d]=%d: the communicator has ranks 0 to %d", i, list[i],
                            s->map.nranks - 1);
        if (list[i] == s->map.rank)
            return SYMM_ERR(symmInvalidArgument,
                            "excludeRanks[%d]=%d is this rank: must be another", i, list[i]);
        gone[list[i]] = 1;
    }
    return symmSuccess;
}

symmResult_t symm_across_shrink(symmComm_t comm, const int *excludeRanks, int nExclude,
                                symmComm_t *newcomm, const symmConfig_t *config, int flags) {
    symm_across *s;
    SYMM_TRY(symm_across_get(comm, &s));
    const size_t bytes = sizeof(child_args) + (size_t)s->map.nranks;
    _Alignas(child_args) char room[bytes]; /* allocated, it could fail on this rank alone */
    child_args *a = memset(room, 0, bytes);
    symmResult_t r = read_list(s, excludeRanks, nExclude, flags, a->gone);
    if (!r) {
        a->comm = comm, a->out = newcomm, a->flags = flags;
        symm_config_keep(&a->config, config);
        r = symm_group_run(s->outer.inner, SYMM_JOB_STAYS, shrink_job, a, bytes);
    } else {
        r = symm_group_refuse(r);
    }
    symm_outer_put(comm);
    return r;
}

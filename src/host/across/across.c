/* across.c - the record of a communicator over several domains: making and freeing it, who is
 * inside, and why it is over. The thread inside; what is said to be so: any. Locks: turn, held by
 * the thread that is inside; reason, for the text. */
#include "across_gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/stats.h"
#include "host/comm/comm.h"

#ifdef SYMM_TESTING
size_t symm_test_across_chunk = SYMM_ACROSS_GPU_CHUNK;
#define GPU_CHUNK symm_test_across_chunk
#else
#define GPU_CHUNK SYMM_ACROSS_GPU_CHUNK
#endif

static void free_scratch(symm_across *s) {
    free(s->parts);
    free(s->counts);
    free(s->packed);
    free(s->codes);
    free(s->left);
    free(s->from);
    free(s->others);
    free(s->stage);
}

/* What calls need, whatever they are: they must not fail for want of it on one rank alone. */
static symmResult_t make_scratch(symm_across *s) {
    const size_t n = (size_t)s->map.nranks;
    s->parts = SYMM_FAIL_ALLOC(across_parts, malloc(4 * n * sizeof *s->parts));
    s->counts = malloc((size_t)s->map.size * sizeof *s->counts);
    s->packed = malloc((size_t)s->map.size * sizeof *s->packed);
    s->codes = malloc((size_t)s->map.nranks * sizeof *s->codes);
    s->left = malloc(n * sizeof *s->left);
    s->from = malloc(n * sizeof *s->from);
    s->others = malloc((size_t)s->map.ndomains * sizeof *s->others);
    if (s->parts && s->counts && s->packed && s->codes && s->left && s->from && s->others)
        return symmSuccess;
    return SYMM_ERR(symmOutOfMemory, "no memory for a communicator over %d domains",
                    s->map.ndomains);
}

static void take_name(symm_across *s, const symm_comm *inner) {
    SYMM_ASSERT(inner->nranks == s->map.size && inner->rank == s->map.place);
    snprintf(s->outer.name, sizeof s->outer.name, "%s", inner->name);
    s->timeout_ms = inner->params.timeout_ms;
    s->setup_ms = inner->config.timeoutMs == SYMM_CONFIG_UNDEF ? inner->params.setup_timeout_ms
                                                               : inner->config.timeoutMs;
    s->chunk = inner->cuda ? GPU_CHUNK : SYMM_ACROSS_CHUNK;
    s->deterministic = (int)inner->params.deterministic;
    s->crowded = inner->oversubscribed;
}

symmResult_t symm_across_make(symm_domains *map, symmComm_t inner, symm_net *net,
                              symm_across **out) {
    symm_comm *c;
    pthread_mutexattr_t attr;
    symm_across *s = SYMM_FAIL_ALLOC(across_alloc, calloc(1, sizeof *s));
    if (!s) return SYMM_ERR(symmOutOfMemory, "no memory for a communicator");
    s->map = *map;
    symmResult_t r = make_scratch(s);
    if (!r) r = symm_comm_visit(inner, &c);
    if (r) {
        free_scratch(s);
        free(s);
        return r;
    }
    take_name(s, c);
    symm_comm_unvisit(c);
    s->outer.inner = inner;
    s->outer.nranks = map->nranks;
    s->outer.domains = map->ndomains;
    s->outer.domain = map->domain;
    s->outer.domain_of = map->domain_of;
    s->outer.place_of = map->place_of;
    s->net = net;
    s->mover = net->ops->name;
    s->alone = net->ops->alone(net);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&s->turn, &attr);
    pthread_mutexattr_destroy(&attr);
    pthread_mutex_init(&s->reason, NULL);
    pthread_mutex_init(&s->giving, NULL);
    *map = (symm_domains){.nranks = 0};
    *out = s;
    return symmSuccess;
}

void symm_across_close_net(symm_across *s) {
    if (s->gpu) symm_across_gpu_close(s);
    if (!s->net) return;
    s->net->ops->close(s->net, s->stage);
    s->net = NULL;
    s->stage = NULL;
    s->staged = 0;
}

void symm_across_free(void *across) {
    symm_across *s = across;
    SYMM_ASSERT(s->outer.inner);
    symm_across_close_net(s);
    symm_domains_free(&s->map);
    free_scratch(s);
    pthread_mutex_destroy(&s->turn);
    pthread_mutex_destroy(&s->reason);
    pthread_mutex_destroy(&s->giving);
    free(s);
}

symmResult_t symm_across_get(symmComm_t comm, symm_across **out) {
    *out = (symm_across *)symm_outer_get(comm);
    return *out ? symmSuccess : symm_comm_bad_handle(comm);
}

symmResult_t symm_across_enter(symm_across *s) {
    const int e = pthread_mutex_lock(&s->turn);
    SYMM_CHECK(symm_domains_check(&s->map));
    if (!e && s->net) return symmSuccess;
    if (!e) { /* another thread has ended it meanwhile */
        pthread_mutex_unlock(&s->turn);
        return symm_comm_bad_handle(s->outer.handle);
    }
    SYMM_ASSERT(e == EDEADLK);
    return SYMM_ERR(symmInvalidUsage,
                    "communicator %s: a call inside another call of this same thread would wait "
                    "for itself",
                    s->outer.name);
}

void symm_across_leave(symm_across *s) {
    SYMM_CHECK(symm_domains_check(&s->map));
    pthread_mutex_unlock(&s->turn);
}

/* The first reason stays. 1: this is the first. */
static int store_reason(symm_across *s, symmResult_t code, const char *text) {
    pthread_mutex_lock(&s->reason);
    const int first = !atomic_load_explicit(&s->code, memory_order_relaxed);
    if (first) {
        snprintf(s->text, sizeof s->text, "%s", text);
        /* release: pairs with the acquire in symm_across_known */
        atomic_store_explicit(&s->code, (int)code, memory_order_release);
    }
    pthread_mutex_unlock(&s->reason);
    return first;
}

symmResult_t symm_across_known(symm_across *s) {
    const int code = atomic_load_explicit(&s->code, memory_order_acquire);
    if (code) symm_status_adopt(s->text);
    return (symmResult_t)code;
}

symmResult_t symm_across_revoke_inner(const symm_across *s, const char *what) {
    symm_comm *c;
    SYMM_TRY(symm_comm_visit_made(s->outer.inner, &c));
    symm_comm_abort_everywhere(c, what, 0);
    symm_comm_unvisit(c);
    return symmSuccess;
}

/* The same for an error, whose text is the thread's last one: with its code. */
static void break_inner(const symm_across *s, symmResult_t r) {
    symm_comm *c;
    if (symm_comm_visit_made(s->outer.inner, &c)) return;
    symm_comm_break(c, r, -1, "a call over several domains");
    symm_comm_unvisit(c);
}

void symm_across_say(symm_across *s) {
    SYMM_ASSERT(s->net);
    if (!s->unsaid.code || !s->net->ops->may(s->net)) return;
    s->net->ops->tell(s->net, &s->unsaid);
    s->unsaid.code = 0;
}

symmResult_t symm_across_fail(symm_across *s, symmResult_t r) {
    char text[SYMM_ERR_TEXT];
    SYMM_ASSERT(r != symmSuccess && s->net);
    snprintf(text, sizeof text, "%s", symm_status_text());
    if (store_reason(s, r, text)) {
        s->unsaid = (symm_net_word){.code = (int32_t)r, .domain = s->map.domain};
        snprintf(s->unsaid.text, sizeof s->unsaid.text, "%s", text);
        s->net->ops->cancel(s->net);
        symm_across_say(s);
        symm_status_adopt(text);
        break_inner(s, r); /* first: a kernel inside may be what NCCL's stand behind */
        if (s->gpu) symm_across_gpu_abort(s);
    }
    symm_status_adopt(text);
    return r;
}

/* What the inner one says numbers ranks by their places. */
symmResult_t symm_across_look_inside(const symm_across *s, int uses) {
    char why[SYMM_ERR_TEXT];
    symm_comm *c;
    SYMM_TRY(symm_comm_visit_made(s->outer.inner, &c));
    const symmResult_t r = uses ? symm_comm_used(c) : symm_comm_told(c);
    symm_comm_unvisit(c);
    if (!r) return symmSuccess;
    snprintf(why, sizeof why, "%s", symm_status_text());
    return SYMM_ERR(r, "communicator %s: in domain %d, whose ranks are places here: %.380s",
                    s->outer.name, s->map.domain, why);
}

/* What a rank has said outside of calls. On GPUs threads make calls that may not use the mover. */
static symmResult_t look_outside(const symm_across *s) {
    symm_net_word word;
    char who[32] = "another rank"; /* by an exchange of the mover's */
    const int may = !s->gpu || s->net->ops->may(s->net);
    if (!may || !s->net->ops->told(s->net, &word)) return symmSuccess;
    if (word.domain >= 0) snprintf(who, sizeof who, "a rank of domain %d", word.domain);
    return SYMM_ERR((symmResult_t)word.code, "communicator %s: %s says: %.400s", s->outer.name, who,
                    word.text);
}

symmResult_t symm_across_look(symm_across *s, int uses) {
    SYMM_TRY(symm_across_known(s));
    if (s->gpu) SYMM_TRY(symm_across_gpu_look(s));
    SYMM_TRY(look_outside(s));
    const symmResult_t r = symm_across_look_inside(s, uses);
    /* Who breaks the inner one has said before why (symm_across_fail): since the look above. */
    if (r) SYMM_TRY(look_outside(s));
    return r;
}

symmResult_t symm_across_begin(symm_across *s) {
    SYMM_TRY(symm_across_enter(s));
    symm_across_say(s);
    symmResult_t r = symm_across_known(s);
    if (!r && !s->gpu) r = s->net->ops->enter(s->net);
    if (r) symm_across_leave(s);
    return r;
}

symmResult_t symm_across_may_queue(symm_across *s, symmStream_t stream) {
    if (stream) return symm_across_known(s); /* it does not wait for who is inside */
    SYMM_TRY(symm_across_begin(s));
    symm_across_leave(s);
    return symmSuccess;
}

symmResult_t symm_across_stage(symm_across *s, size_t bytes, char **out) {
    if (s->gpu) return symm_across_gpu_stage(s, bytes, out);
    if (bytes > s->staged) {
        void *more = NULL;
        const size_t room = (bytes + 4095) / 4096 * 4096;
        if (SYMM_FAIL_HERE(across_stage) || posix_memalign(&more, 4096, room))
            return SYMM_ERR(symmOutOfMemory, "communicator %s: no memory to stage %zu bytes",
                            s->outer.name, bytes);
        free(s->stage);
        s->stage = more;
        s->staged = room;
    }
    SYMM_ASSERT(bytes <= s->staged && (s->stage || !bytes));
    *out = s->stage;
    return symmSuccess;
}

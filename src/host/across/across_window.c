/* across_window.c - a window over several domains: a window of each domain, made by one call that
 * succeeds on all ranks or on none. The thread inside. */
#include <stdio.h>

#include "base/check.h"
#include "base/handle.h"
#include "base/wait.h"
#include "host/comm/group.h"
#include "transport/net/boot_net.h"
#include "across_gpu.h"

/* GPUs: by the mover, which their calls do not use. The wait is that of set-up. */
static symmResult_t share_by_mover(symm_across *s, const void *mine, void *all, size_t bytes) {
    symm_boot *boot;
    const symm_wait w = {.stage = "an exchange between domains",
                         .deadline_ns = symm_now_ns() + (uint64_t)s->setup_ms * 1000000u};
    SYMM_TRY(symm_across_known(s));
    SYMM_TRY(s->net->ops->enter(s->net));
    SYMM_TRY(symm_boot_net_open(s->net, s->map.rank, s->map.nranks, &boot));
    const symmResult_t r = symm_boot_allgather(boot, mine, all, bytes, &w);
    symm_boot_close(boot);
    return r;
}

symmResult_t symm_across_share(symm_across *s, const void *mine, void *all, size_t bytes) {
    if (!s->gpu) return symmAllGather(mine, all, bytes, symmUint8, s->outer.handle, NULL);
    SYMM_TRY(symm_across_enter(s));
    symmResult_t r = share_by_mover(s, mine, all, bytes);
    if (r) r = symm_across_fail(s, r);
    symm_across_leave(s);
    return r;
}

static symmResult_t find_worst(symm_across *s, int32_t code, int32_t *worst) {
    if (!s->gpu) return symmAllReduce(&code, worst, 1, symmInt32, symmMax, s->outer.handle, NULL);
    SYMM_TRY(symm_across_share(s, &code, s->codes, sizeof code));
    for (int q = 0; q < s->map.nranks; q++)
        if (s->codes[q] > *worst) *worst = s->codes[q];
    return symmSuccess;
}

symmResult_t symm_across_agree(symm_across *s, symmResult_t own, const char *what) {
    int32_t worst = 0;
    char why[SYMM_ERR_TEXT];
    snprintf(why, sizeof why, "%s", symm_status_text());
    const symmResult_t r = find_worst(s, (int32_t)own, &worst);
    if (own) symm_status_adopt(why);
    if (own || r) return own ? own : r;
    return worst ? SYMM_ERR((symmResult_t)worst, "communicator %s: another rank %s: %s",
                            s->outer.name, what, symmGetErrorString((symmResult_t)worst))
                 : symmSuccess;
}

/* own: what the inner communicator said of this rank's part; part: that, if it was made. */
static symmResult_t settle(symm_across *s, symmResult_t own, symmWindow_t part, symmWindow_t *win) {
    const symmResult_t r = symm_across_agree(s, own, "could not register its part of the window");
    if (!r) {
        symm_win *w = symm_handle_peek(SYMM_KIND_WINDOW, part);
        SYMM_ASSERT(w && w->comm->handle == s->outer.inner && !w->outer);
        /* until its end: other threads ask about the window while the communicator ends */
        if (w) w->outer = symm_outer_get(s->outer.handle);
        *win = part;
    } else if (part) {
        symmWindowDeregister(s->outer.inner, part);
    }
    return r;
}

typedef struct {
    symmComm_t comm;
    void *buff;
    size_t size;
    symmWindow_t *win;
    int flags;
} register_args;

static symmResult_t register_job(void *args) {
    const register_args *a = args;
    symm_across *s;
    symmWindow_t part = NULL;
    SYMM_TRY(symm_across_get(a->comm, &s));
    symmResult_t r = symm_across_follow(s); /* a worker may be in a call of the inner one */
    if (!r) {
        const symmResult_t own =
            symmWindowRegister(s->outer.inner, a->buff, a->size, a->win ? &part : NULL, a->flags);
        r = settle(s, own, part, a->win);
    }
    symm_outer_put(a->comm);
    return r;
}

symmResult_t symm_across_register(symm_outer *o, void *buff, size_t size, symmWindow_t *win,
                                  int flags) {
    register_args a = {o->handle, buff, size, win, flags};
    return symm_group_run(o->inner, SYMM_JOB_STAYS, register_job, &a, sizeof a);
}

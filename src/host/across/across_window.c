/* across_window.c - a window over several domains: a window of each domain, made by one call that
 * succeeds on all ranks or on none. The thread inside. */
#include <stdio.h>

#include "base/check.h"
#include "base/handle.h"
#include "host/comm/group.h"
#include "across.h"

/* The greatest of what the ranks say; after it all domains have come. */
static symmResult_t agree(symm_across *s, symmResult_t own, symmResult_t *all) {
    int32_t code = (int32_t)own, worst = 0;
    const symmResult_t r = symmAllReduce(&code, &worst, 1, symmInt32, symmMax, s->handle, NULL);
    *all = (symmResult_t)worst;
    return r;
}

static symmResult_t elsewhere(const symm_across *s, symmResult_t r) {
    return SYMM_ERR(r,
                    "communicator %s: a rank of another domain could not register its part of the "
                    "window: %s",
                    s->outer.name, symmGetErrorString(r));
}

/* own: what the inner communicator said of this rank's part; part: that, if it was made. */
static symmResult_t settle(symm_across *s, symmResult_t own, symmWindow_t part, symmWindow_t *win) {
    symmResult_t all;
    char why[SYMM_ERR_TEXT];
    snprintf(why, sizeof why, "%s", symm_status_text());
    const symmResult_t r = agree(s, own, &all);
    if (!r && !all) {
        symm_win *w = symm_handle_peek(SYMM_KIND_WINDOW, part);
        SYMM_ASSERT(w && w->comm->handle == s->outer.inner && !w->outer);
        if (w) w->outer = &s->outer;
        *win = part;
        return symmSuccess;
    }
    if (part) symmWindowDeregister(s->outer.inner, part);
    if (own) symm_status_adopt(why);
    return own ? own : r ? r : elsewhere(s, all);
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
    const symmResult_t own =
        symmWindowRegister(s->outer.inner, a->buff, a->size, a->win ? &part : NULL, a->flags);
    const symmResult_t r = settle(s, own, part, a->win);
    symm_outer_put(a->comm);
    return r;
}

symmResult_t symm_across_register(symm_outer *o, void *buff, size_t size, symmWindow_t *win,
                                  int flags) {
    const symmComm_t comm = ((symm_across *)o)->handle;
    register_args a = {comm, buff, size, win, flags};
    return symm_group_run(comm, SYMM_JOB_STAYS, register_job, &a, sizeof a);
}

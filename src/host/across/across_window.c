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

symmResult_t symm_across_register(symm_outer *o, void *buff, size_t size, symmWindow_t *win,
                                  int flags) {
    symm_across *s = (symm_across *)o;
    symmWindow_t part = NULL;
    symmResult_t all;
    char why[SYMM_ERR_TEXT];
    if (symm_group_open())
        return symm_group_refuse(SYMM_ERR(symmNotSupported,
                                          "symmWindowRegister: a communicator over several domains "
                                          "(%s) is in no group",
                                          o->name));
    symmResult_t own = symmWindowRegister(o->inner, buff, size, win ? &part : NULL, flags);
    snprintf(why, sizeof why, "%s", symm_status_text());
    const symmResult_t r = agree(s, own, &all);
    if (!r && !all) {
        symm_win *w = symm_handle_peek(SYMM_KIND_WINDOW, part);
        SYMM_ASSERT(w && w->comm->handle == o->inner && !w->outer);
        if (w) w->outer = o;
        *win = part;
        return symmSuccess;
    }
    if (part) symmWindowDeregister(o->inner, part);
    if (own) symm_status_adopt(why);
    return own ? own : r ? r : elsewhere(s, all);
}

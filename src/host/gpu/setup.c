/* setup.c - see setup.h. No lock. */
#include "setup.h"

#include "base/log.h"
#include "host/comm/comm.h"

void symm_setup_begin(symm_comm *c, symm_setup *s) {
    symm_log_rank(c->rank);
    if (c->cuda) symm_gpu_reap();
    s->c = c;
    s->status = symm_gpu_push(c, &s->scope);
}

void symm_setup_end(symm_setup *s) {
    if (!s->status) symm_gpu_pop(s->c, &s->scope);
}

symmResult_t symm_setup_enter(symmComm_t comm, symm_setup *s) {
    symm_comm *c;
    SYMM_TRY(symm_comm_enter(comm, SYMM_ENTER_LIVE, &c));
    symm_setup_begin(c, s);
    return symmSuccess;
}

symmResult_t symm_setup_leave(symm_setup *s, symmResult_t r) {
    symm_setup_end(s);
    symm_comm_leave(s->c);
    return r;
}

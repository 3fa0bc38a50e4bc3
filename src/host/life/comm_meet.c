/* comm_meet.c - what a program has its ranks settle before they are a communicator, and when they
 * cannot be one (symm_meet.h). Runs on the thread that makes the communicator; no lock. */
#include <stdio.h>

#include "base/status.h"
#include "host/comm/comm.h"
#include "host/gpu/backend.h"
#include "comm_make.h"

#define ALONE_NS 10000000000ull /* how long a rank without a record tries to tell the others */

typedef struct {
    symm_comm *c; /* NULL: none */
    symm_boot *boot;
} inside;

static const char stage[] = "settling what is made";

symmResult_t symm_comm_check_meet(const symmMeet_t *meet) {
    if (meet && meet->settle) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument, "%s is NULL", meet ? "meet->settle" : "meet");
}

symmResult_t symmMeetingAllgather(const symmMeeting_t *meeting, const void *send, void *recv,
                                  size_t bytes) {
    if (!meeting || !send || !recv)
        return SYMM_ERR(symmInvalidArgument, "%s is NULL",
                        !meeting ? "meeting"
                        : send   ? "recv"
                                 : "send");
    const inside *in = meeting->inside;
    symm_wait w = {.deadline_ns = symm_now_ns() + ALONE_NS, .stage = stage};
    if (in->c) w = symm_comm_wait_early(in->c, stage);
    return symm_boot_allgather(in->boot, send, recv, bytes, &w);
}

/* What a meeting has of the variables, which are read for good later: bad ones are told then. */
static void look(symm_comm *c, symmMeeting_t *m) {
    symm_params p;
    const int bad = symm_param_load(&p) != symmSuccess;
    if (c) c->params.setup_timeout_ms = bad ? 300000 : p.setup_timeout_ms;
    m->timeoutMs = bad ? 300000 : (int)p.setup_timeout_ms;
    if (c && c->config.timeoutMs != SYMM_CONFIG_UNDEF) m->timeoutMs = c->config.timeoutMs;
    if (!bad) m->device = symm_backend_device(&p);
}

/* The second call is of ranks that have a record. Too many ranks are what cannot be made, too. */
static symmResult_t told(const symm_comm *c, symmResult_t status) {
    if (c) return status ? symmNotSupported : symmSuccess;
    return status == symmNotSupported ? symmInvalidUsage : status;
}

symmResult_t symm_comm_settle(symm_comm *c, symm_boot *boot, symmResult_t status) {
    char why[SYMM_ERR_TEXT];
    if (!boot->meet.settle) return status;
    snprintf(why, sizeof why, "%s", symm_status_text());
    inside in = {c, boot};
    symmMeeting_t meeting = {boot->rank, boot->nranks, -1, 0, &in};
    look(c, &meeting);
    symmVerdict_t verdict = {.elsewhere = 0};
    status = told(c, status);
    symm_status_adopt(why);
    const symmResult_t r = boot->meet.settle(boot->meet.ctx, &meeting, status, &verdict);
    verdict.text[sizeof verdict.text - 1] = 0;
    if (!r && verdict.elsewhere) return SYMM_ELSEWHERE;
    if (!r && !status) return symmSuccess;
    if (verdict.text[0])
        symm_status_adopt(verdict.text);
    else if (!r || r == status)
        symm_status_adopt(why);
    return r ? r : status;
}

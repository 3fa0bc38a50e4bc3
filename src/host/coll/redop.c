/* redop.c - premulsum handles of a communicator. The communicator's user thread; no lock. */
#include "redop.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "device/host/reduce.h"
#include "host/comm/comm.h"
#include "host/comm/outer.h"
#include "host/gpu/gpu.h"
#include "host/window/window.h"

/* Of a new or a found reduction. */
static void redop_check(const symm_comm *c, const symm_redop *o) {
    SYMM_ASSERT(o >= c->calls.redops && o < c->calls.redops + c->calls.nredops);
    SYMM_ASSERT(o->live && o->type < symmNumTypes);
    SYMM_ASSERT(!o->ptr || !o->scalar); /* one place of its factor */
}

const symm_redop *symm_redop_find(const symm_comm *c, symmRedOp_t op) {
    int64_t i = (int64_t)op - symmNumOps; /* op may be any int */
    return i >= 0 && i < c->calls.nredops && c->calls.redops[i].live ? &c->calls.redops[i] : NULL;
}

void symm_redop_drop_all(symm_comm *c) {
    free(c->calls.redops);
    c->calls.redops = NULL;
    c->calls.nredops = 0;
}

static symmResult_t new_place(symm_comm *c, int *out) {
    for (int i = 0; i < c->calls.nredops; i++)
        if (!c->calls.redops[i].live) {
            *out = i;
            return symmSuccess;
        }
    int n = c->calls.nredops ? 2 * c->calls.nredops : 8;
    symm_redop *more =
        SYMM_FAIL_ALLOC(redop_alloc, realloc(c->calls.redops, (size_t)n * sizeof *more));
    if (!more) return SYMM_ERR(symmOutOfMemory, "no memory for a reduction");
    memset(more + c->calls.nredops, 0, (size_t)(n - c->calls.nredops) * sizeof *more);
    c->calls.redops = more;
    *out = c->calls.nredops;
    c->calls.nredops = n;
    return symmSuccess;
}

static symmResult_t create(symm_comm *c, symmRedOp_t *op, void *scalar, symmDataType_t type,
                           symmScalarResidence_t residence) {
    int i = -1;
    if (!op) return SYMM_ERR(symmInvalidArgument, "op is NULL");
    if (!scalar) return SYMM_ERR(symmInvalidArgument, "scalar is NULL");
    if (!symm_type_size((unsigned)type))
        return SYMM_ERR(symmInvalidArgument, "datatype=%d: must be 0 to %d", (int)type,
                        symmNumTypes - 1);
    if (residence != symmScalarDevice && residence != symmScalarHostImmediate)
        return SYMM_ERR(symmInvalidArgument,
                        "residence=%d: must be symmScalarDevice or symmScalarHostImmediate",
                        (int)residence);
    if (c->cuda && residence == symmScalarDevice)
        SYMM_TRY(symm_gpu_check_buffer(c, "scalar", scalar)); /* a kernel will read it */
    SYMM_TRY(new_place(c, &i));
    symm_redop r = {.live = 1, .type = (uint32_t)type};
    if (residence == symmScalarDevice)
        r.ptr = scalar;
    else
        memcpy(&r.scalar, scalar, symm_type_size((unsigned)type));
    SYMM_ASSERT(!c->calls.redops[i].live);
    c->calls.redops[i] = r;
    SYMM_CHECK(redop_check(c, &c->calls.redops[i]));
    symm_window_changed(c); /* a remembered call may have meant an older reduction of this number */
    *op = (symmRedOp_t)(symmNumOps + i);
    return symmSuccess;
}

symmResult_t symmRedOpCreatePreMulSum(symmRedOp_t *op, void *scalar, symmDataType_t datatype,
                                      symmScalarResidence_t residence, symmComm_t comm) {
    symm_comm *c;
    SYMM_TRY(symm_comm_enter(symm_outer_inner(comm), 0, &c));
    symmResult_t r = create(c, op, scalar, datatype, residence);
    symm_comm_leave(c);
    return r;
}

symmResult_t symmRedOpDestroy(symmRedOp_t op, symmComm_t comm) {
    symm_comm *c;
    SYMM_TRY(symm_comm_enter(symm_outer_inner(comm), 0, &c));
    symmResult_t r = symmSuccess;
    symm_redop *o = (symm_redop *)symm_redop_find(c, op);
    if (!o)
        r = SYMM_ERR(symmInvalidArgument, "op=%d is not a reduction made for communicator %s",
                     (int)op, c->name);
    else {
        SYMM_CHECK(redop_check(c, o));
        o->live = 0;
        symm_window_changed(c);
    }
    symm_comm_leave(c);
    return r;
}

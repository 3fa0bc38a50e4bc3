/* exports.c - the bodies of all rows of symbols.def that are not native: refused, or passed on to a
 * real NCCL. Any thread; no lock. */
#include "plugin.h"

#define EMPTY_ncclResult_t ncclInvalidUsage
#define EMPTY_int          0
#define EMPTY_ncclTeam_t   ((ncclTeam_t){0, 0, 0})
#define EMPTY_void         ((void)0)

static void refuse(const char *name, const char *why, const char *more) {
    symm_nccl_shapes_refused();
    symm_nccl_fail(ncclInvalidUsage, "%s %s%s%s", name, why, *more ? ": " : "", more);
}

#define BODY_native(ret, name, params, args, why)
#define BODY_refused(ret, name, params, args, why) \
    ret name params {                              \
        refuse(#name, why, "");                    \
        return EMPTY_##ret;                        \
    }                                              \
    NCCL_ALIAS(name);
#define BODY_later BODY_refused
#define INSIDE_REAL \
    __attribute__((cleanup(symm_nccl_real_left))) int before = symm_nccl_real_entered()
#define BODY_forwarded(ret, name, params, args, why)               \
    ret name params {                                              \
        const char *none;                                          \
        __typeof__(&name) real = symm_nccl_real("p" #name, &none); \
        INSIDE_REAL;                                               \
        if (real) return real args;                                \
        refuse(#name, why, none);                                  \
        return EMPTY_##ret;                                        \
    }                                                              \
    NCCL_ALIAS(name);

/* Arguments of a refused call are not looked at. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define SYMBOL(class, ret, name, params, args, why) BODY_##class(ret, name, params, args, why)
#include "symbols.def"

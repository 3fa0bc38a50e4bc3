/* exports.c - the bodies of all rows of symbols.def that are not native: refused, or passed on to a
 * real NCCL. Any thread; no lock. */
#include "plugin.h"

static void refuse(const char *name, const char *why, const char *more) {
    symm_nccl_shapes_refused();
    symm_nccl_fail(ncclInvalidUsage, "%s %s%s%s", name, why, *more ? ": " : "", more);
}

#define BODY_native(ret, name, params, args, why)
#define BODY_native_comm BODY_native
#define BODY_native_win  BODY_native
#define BODY_refused(ret, name, params, args, why) \
    ret name params {                              \
        refuse(#name, why, "");                    \
        return NCCL_EMPTY_##ret;                   \
    }                                              \
    NCCL_ALIAS(name);
#define BODY_refused_comm(ret, name, params, args, why)                          \
    ret name params {                                                            \
        if (symm_nccl_passes((ncclComm_t)comm)) return NCCL_ELSE(name) args;     \
        if (symm_nccl_has_shadow((ncclComm_t)comm)) return NCCL_OVER(name) args; \
        refuse(#name, why, "");                                                  \
        return NCCL_EMPTY_##ret;                                                 \
    }                                                                            \
    NCCL_ALIAS(name);
#define BODY_refused_win(ret, name, params, args, why)                    \
    ret name params {                                                     \
        if (symm_nccl_passes_window(win) || symm_nccl_window_theirs(win)) \
            return NCCL_ELSE(name) args;                                  \
        refuse(#name, why, "");                                           \
        return NCCL_EMPTY_##ret;                                          \
    }                                                                     \
    NCCL_ALIAS(name);
#define BODY_later      BODY_refused
#define BODY_later_comm BODY_refused_comm
#define BODY_forwarded(ret, name, params, args, why)    \
    ret name params {                                   \
        const char *none;                               \
        const nccl_calls *real = symm_nccl_real(&none); \
        NCCL_INSIDE_REAL;                               \
        if (real && real->name) return real->name args; \
        if (real) none = symm_nccl_real_lacks(#name);   \
        refuse(#name, why, none);                       \
        return NCCL_EMPTY_##ret;                        \
    }                                                   \
    NCCL_ALIAS(name);

/* Arguments of a refused call are not looked at. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define SYMBOL(class, ret, name, params, args, why) BODY_##class(ret, name, params, args, why)
#include "symbols.def"

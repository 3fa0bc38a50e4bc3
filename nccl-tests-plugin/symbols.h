/* symbols.h - the prototypes of all rows of symbols.def and of their pnccl names. */
#ifndef SYMM_NCCL_SYMBOLS_H_
#define SYMM_NCCL_SYMBOLS_H_

#include "abi.h"

typedef const char *nccl_text;

#define SYMBOL(class, ret, name, params, args, why)         \
    __attribute__((visibility("default"))) ret name params; \
    __attribute__((visibility("default"))) ret p##name params;
#include "symbols.def"
#undef SYMBOL

/* A real NCCL's functions, one for each row; NULL: it has none of that name (real.c). */
typedef struct {
#define SYMBOL(class, ret, name, params, args, why) ret(*name) params;
#include "symbols.def"
#undef SYMBOL
} nccl_calls;

/* What a native row's function ends with if the communicator (_comm), or the window (_win), is none
 * of its own: the real NCCL's function if it is forwarded, else the error (forward.c). */
#define NCCL_ELSE(name)                             symm_nccl_else_##name
#define SYMBOL(class, ret, name, params, args, why) ret NCCL_ELSE(name) params;
#include "symbols.def"
#undef SYMBOL

/* The same call of a native communicator that has a shadow: the real NCCL's function, with the
 * shadow's handle (forward.c). There for all rows with _comm. */
#define NCCL_OVER(name)                             symm_nccl_over_##name
#define SYMBOL(class, ret, name, params, args, why) ret NCCL_OVER(name) params;
#include "symbols.def"
#undef SYMBOL

/* What a refused call returns that returns no code. */
#define NCCL_EMPTY_ncclResult_t ncclInvalidUsage
#define NCCL_EMPTY_int          0
#define NCCL_EMPTY_ncclTeam_t   ((ncclTeam_t){0, 0, 0})
#define NCCL_EMPTY_void         ((void)0)

/* Behind a function: its second name. */
#define NCCL_ALIAS(name) extern __typeof__(name) p##name __attribute__((alias(#name)))

#endif

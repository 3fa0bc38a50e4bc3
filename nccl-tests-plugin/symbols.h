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

/* Behind a function: its second name. */
#define NCCL_ALIAS(name) extern __typeof__(name) p##name __attribute__((alias(#name)))

#endif

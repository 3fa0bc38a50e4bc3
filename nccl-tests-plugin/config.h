/* config.h - ncclConfig_t of any version from 2.14 on, ncclCollConfig_t. Any thread; no lock. */
#ifndef SYMM_NCCL_CONFIG_H_
#define SYMM_NCCL_CONFIG_H_

#include "plugin.h"

/* What symm takes of a program's config (NULL: nothing is set). Fields that its version does not
 * have count as unset, fields that it has and we do not are not looked at. out->commName points
 * into the caller's. ncclInvalidArgument names field, value and what is allowed. */
ncclResult_t symm_nccl_config(const ncclConfig_t *config, symmConfig_t *out);
/* A program's config, byte by byte, with its strings: a group, or a thread, uses it later.
 * Counted. NULL: no memory. */
nccl_kept *symm_nccl_kept_new(const ncclConfig_t *config);
nccl_kept *symm_nccl_kept_ref(nccl_kept *k); /* NULL stays NULL */
void symm_nccl_kept_drop(nccl_kept *k);      /* NULL: nothing */
ncclConfig_t *symm_nccl_kept_config(nccl_kept *k);
/* Checks the config of one collective call, of 2.31 or newer; NULL is allowed. */
ncclResult_t symm_nccl_coll_config(const ncclCollConfig_t *config, const char *call);

#endif

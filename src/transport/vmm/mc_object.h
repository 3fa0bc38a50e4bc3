/* mc_object.h - a multicast object without hardware: a sealed file that every member maps, and in
 * which each writes down what it has bound. Errors are errno values, 0 is none.
 *
 * Any thread, any process. A member alone writes its part of the file, under a lock of its process;
 * others read it. What a member has bound may be read while it binds or unbinds something else. */
#ifndef SYMM_MC_OBJECT_H_
#define SYMM_MC_OBJECT_H_

#include <stdint.h>

typedef struct symm_mc_object symm_mc_object;

typedef struct {         /* memory that a member has bound */
    uint64_t off, bytes; /* in the object */
    uint64_t id[2];      /* which memory, as in memfd.h */
    uint64_t from;       /* its byte at off */
} symm_mc_bound;

/* *fd: CLOEXEC, beyond those of stdio; the caller counts and closes it, here and below. */
int symm_mc_object_make(uint64_t bytes, int members, symm_mc_object **o, int *fd);
/* EINVAL if fd is no object of that size (0: of any). */
int symm_mc_object_open(int fd, uint64_t bytes, symm_mc_object **o);
void symm_mc_object_close(symm_mc_object *o);

int symm_mc_object_members(const symm_mc_object *o);
uint64_t symm_mc_object_bytes(const symm_mc_object *o);
/* EALREADY: it has joined through this one; EBUSY: all members have. */
int symm_mc_object_join(symm_mc_object *o);
/* 1 when all have joined. */
int symm_mc_object_full(const symm_mc_object *o);
/* EAGAIN: not all have joined; EINVAL: beyond the object, or over something; ENOSPC: no room to
 * write it down. */
int symm_mc_object_bind(symm_mc_object *o, const symm_mc_bound *b);
/* EINVAL: nothing is bound that begins and ends there. */
int symm_mc_object_unbind(symm_mc_object *o, uint64_t off, uint64_t bytes);
/* What a member has bound that holds [off, off + bytes). 0: none does. */
int symm_mc_object_find(const symm_mc_object *o, int member, uint64_t off, uint64_t bytes,
                        symm_mc_bound *out);

#endif

/* multicast.h - the multicast range of a space: one range of one stride beside the unicast ranges.
 * Behind it is one object (transport/vmm/multicast_driver.h), made with the space; each slot's
 * memory is bound in it at the slot's offset. So
 *
 *     address of offset off, of rank r's memory:      base + r*stride + off
 *     address of offset off, of all ranks' memory:    multicast base + off
 *
 * Off unless SYMM_MULTICAST=1. Each step is followed by an exchange, and what fails on one rank is
 * undone on all: they go on with unicast alone and know why. Nothing here makes a call fail, except
 * a broken connection.
 *
 * The thread inside the API call, but for let_go and end: any thread, without the space's lock. The
 * pieces of a slot change while its user or its end alone has it. No lock of its own. */
#ifndef SYMM_MULTICAST_H_
#define SYMM_MULTICAST_H_

#include "host/comm/types.h"
#include "handle_exchange.h"

/* 1 if this rank can have multicast windows. 0: `why` says what is missing. [local] */
int symm_multicast_wish(const symm_comm *c, char *why, size_t cap);
/* Makes the object of a space that no other communicator has yet: create, import, join, map. Where
 * a rank cannot, none has it. pre: c->windows.multicast. [collective] */
symmResult_t symm_multicast_open(symm_comm *c, const char *stage);
/* No rank's slots are left here. */
void symm_multicast_close(symm_space *s);

/* Binds own memory, handles[n] with parts[n], which lies one after the other from the slot's
 * beginning: of it, what lies in [lo, hi), which is the same on all ranks. It is bound on all ranks
 * or on none. Nothing happens where c->windows.multicast is 0 or the space has no object.
 * [collective] */
symmResult_t symm_multicast_bind_range(symm_comm *c, symm_slot *slot,
                                       symm_vmm_handle *const *handles, const symm_part *parts,
                                       int n, uint64_t lo, uint64_t hi, const char *stage);
/* The same for parts at offsets of their own, whole: where they are the same on all ranks. */
symmResult_t symm_multicast_bind_parts(symm_comm *c, symm_slot *slot,
                                       symm_vmm_handle *const *handles, const symm_part *parts,
                                       int n, const char *stage);
/* Unbinds the pieces that lie in [off, off + bytes) of the slot; before they are unmapped. */
void symm_multicast_let_go(symm_space *s, symm_slot *slot, uint64_t off, uint64_t bytes);
/* Unbinds all of them. */
void symm_multicast_end(symm_space *s, symm_slot *slot);

/* The multicast address of offset `off` of the space if all of [off, off + bytes), inside one slot,
 * is bound. NULL: why says why not. */
char *symm_multicast_at(const symm_comm *c, uint64_t off, uint64_t bytes, char *why, size_t cap);
/* The same of a flat offset of a communicator, as kernels exchange them. */
char *symm_multicast_flat(const symm_comm *c, uint64_t off, uint64_t bytes, char *why, size_t cap);
/* Of a part of a window, as this rank has it. [local] */
char *symm_multicast_of(const struct symm_win *w, uint64_t in, uint64_t bytes, char *why,
                        size_t cap);
/* Why the communicator has none, "" if it has. */
const char *symm_multicast_why(const symm_comm *c);

#endif

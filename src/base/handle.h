/* handle.h - the table of live objects, and the handles that users have.
 * A handle is {kind, generation, slot}, not an address. So a stale handle is found without a
 * dereference, and the generation keeps it from naming a newer object. Any thread. get, find, close
 * and a put that is not the last are lock-free; new and the last put take the set-up lock. */
#ifndef SYMM_HANDLE_H_
#define SYMM_HANDLE_H_

#include <stdint.h>

#include "status.h"

enum {
    SYMM_KIND_STREAM,
    SYMM_KIND_EVENT,
    SYMM_KIND_GRAPH,
    SYMM_KIND_EXEC,
    SYMM_KIND_COMM,
    SYMM_KIND_WINDOW,
    SYMM_KIND_HEAP,
    SYMM_KIND_VEC,
    SYMM_KIND_SYNCED,
    SYMM_KIND_LANE,
    SYMM_KIND_PLAN,
    SYMM_KIND_ARENA,
    SYMM_KIND_DEVCOMM,
    SYMM_KIND_ACROSS,
    SYMM_KIND_SHARE,
    SYMM_KIND_COUNT
};

/* The top byte of handles of communicators over several domains. */
enum { SYMM_TAG_ACROSS = 0x4f };
/* Whether a handle is of that kind, open or not. */
static inline int symm_handle_is_across(const void *handle) {
    return (uintptr_t)handle >> 56 == SYMM_TAG_ACROSS;
}

/* The one lock of set-up: it guards handle slots and captures. Not held while code of the user
 * runs. fork() takes it. Order: it may be taken under an event's lock, not under a stream's or
 * graph's. */
void symm_handle_lock(void);
void symm_handle_unlock(void);

/* Registers obj with one reference, the handle's own. free_obj runs in the put that drops the last
 * one. */
symmResult_t symm_handle_new(int kind, void *obj, void (*free_obj)(void *), void **handle);
/* The object, pinned by one reference, or NULL if the handle names no open object of this kind.
 * Never logs. */
void *symm_handle_get(int kind, const void *handle);
/* The object without a pin, or NULL: for a caller whose own rules keep it alive (a communicator is
 * used, and destroyed, by one thread at a time). Two loads. */
void *symm_handle_peek(int kind, const void *handle);
/* set_range: while addresses in [lo, lo + bytes) are used, the object is used and destroyed by one
 * thread at a time, the calling one. peek_at: as peek if p is one of these addresses, else NULL. Of
 * a window the one address is its communicator's record. */
void symm_handle_set_range(int kind, const void *handle, const void *lo, uint64_t bytes);
void *symm_handle_peek_at(int kind, const void *handle, const void *p);
/* As get, but also while the object is being closed. */
void *symm_handle_find(int kind, const void *handle);
/* 1 if the handle names an open object of this kind. */
int symm_handle_open(int kind, const void *handle);
/* get fails from now on. 1 for the one caller that has closed it. That caller puts the handle's own
 * reference at the end. */
int symm_handle_close(int kind, const void *handle);
void symm_handle_put(int kind, const void *handle);

#endif

/* handle.h - the table of live objects, and the handles that users hold.
 * A handle is {kind, generation, slot}, not an address: nothing is dereferenced to find out that it
 * is stale, and the generation keeps an old handle from naming a new object. Any thread. get, find,
 * close and put of a pin are lock-free; new and the last put take the set-up lock. */
#ifndef SYMM_HANDLE_H_
#define SYMM_HANDLE_H_

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
    SYMM_KIND_COUNT
};

/* The one lock of set-up: handle slots and captures. Never held while foreign code runs, nor across
 * fork(), which takes it. Order: an event's lock may be held when it is taken; stream and graph
 * locks may not. */
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
/* Of the object's addresses those in [lo, lo + bytes) are used, and the object is then destroyed,
 * by one thread at a time: said by that thread. peek_at is peek where p is one of them, else
 * NULL. */
void symm_handle_set_range(int kind, const void *handle, const void *lo, uint64_t bytes);
void *symm_handle_peek_at(int kind, const void *handle, const void *p);
/* As get, but also while the object is being closed. */
void *symm_handle_find(int kind, const void *handle);
/* 1 if the handle names an open object of this kind. */
int symm_handle_open(int kind, const void *handle);
/* get fails from now on. 1 for the one caller who closed it; that one puts the handle's own
 * reference in the end. */
int symm_handle_close(int kind, const void *handle);
void symm_handle_put(int kind, const void *handle);

#endif

/* window.h - what is registered with a communicator, and finding it again by address. The
 * communicator's user thread; references that captured calls hold may be dropped by any thread. */
#ifndef SYMM_WINDOW_H_
#define SYMM_WINDOW_H_

#include "host/comm/types.h"
#include "exchange.h"

/* To be called when something changes that prepared calls depend on: windows, memory of heaps,
 * reductions. A remembered call holds for one version only. */
static inline void symm_window_changed(symm_comm *c) {
    c->windows.version++;
}
static inline uint64_t symm_window_version(const symm_comm *c) {
    return c->windows.version;
}
/* Any thread. */
static inline int symm_window_count(const symm_comm *c) {
    return c->windows.count;
}

/* Where a window is: slot, off, size, bytes, ended. The user's thread changes them under this lock,
 * and reads them without it; questions of other threads read them under it. Before the space's. */
void symm_window_lock(void);
void symm_window_unlock(void);

/* The window that contains [ptr, ptr + bytes), or NULL. Memory that has ended since it was
 * registered is in none. */
symm_win *symm_window_at(symm_comm *c, const void *ptr, uint64_t bytes);
/* The same; tries w first (NULL: no guess). */
symm_win *symm_window_also(symm_comm *c, symm_win *w, const void *ptr, uint64_t bytes);
/* The window of this handle; NULL: it is none of c's. Looks into no window of another communicator,
 * which another thread may end. */
symm_win *symm_window_of(const symm_comm *c, symmWindow_t win);
/* Room for one more in the list of the communicator's windows. */
symmResult_t symm_window_make_room(symm_comm *c);
/* w has `bytes` from now on, and takes over the list of its pieces. pre: room. */
void symm_window_lengthen(symm_win *w, uint64_t bytes, symm_lived *list, int n);
void symm_window_ref(symm_win *w);
/* The last reference frees the window and drops its slot, which unmaps nothing by itself. */
void symm_window_unref(symm_win *w);
void symm_window_drop_all(symm_comm *c);
/* Asserts the invariants of the list of windows, and of one of them. */
void symm_windows_check(const symm_comm *c);
void symm_window_check(const symm_win *w);

/* Retains the segments that cover [buff, buff+size); let_go releases what find has retained, also
 * if find failed. */
symmResult_t symm_window_find(symm_comm *c, char *buff, size_t size, symm_bring *b);
void symm_window_let_go(symm_comm *c, symm_bring *b);

/* In words, why symm_window_at finds none: "sendbuff's window ends 64 bytes before the buffer
 * does". */
void symm_window_why(symm_comm *c, const char *name, const void *p, uint64_t bytes, char *text,
                     size_t cap);
/* Writes the same into the log if a window has a part of the buffer; once for each window. */
void symm_window_say_short(symm_comm *c, const char *name, const void *p, uint64_t bytes);

/* The pieces of memory under a window, one for each segment that find has found; the caller frees
 * the list. */
symmResult_t symm_window_list(symm_comm *c, const void *buff, const symm_bring *b,
                              symm_lived **out);
/* Windows of which all memory has ended here give up what they map, as if they were deregistered,
 * unless captured calls use them. Their handles stay until they are deregistered. Before the
 * exchange of a registration. */
void symm_window_sweep(symm_comm *c);
/* w takes the list over. From here on it is a window only where these pieces have not ended. */
void symm_window_watch(symm_win *w, symm_lived *list, int n);
/* 1 if the memory at [ptr, ptr + bytes), inside w, is still what was registered. */
int symm_window_lives(symm_win *w, const void *ptr, uint64_t bytes);
/* How many pieces are in that range; out (may be NULL): which. */
int symm_window_pieces(const symm_win *w, const void *ptr, uint64_t bytes, symm_lived *out);

/* Flat offset of ptr on this rank, which lies in w. */
static inline uint64_t symm_window_offset(const symm_win *w, int rank, const void *ptr) {
    return w->off[rank] + (uint64_t)((const char *)ptr - w->ptr);
}

#endif

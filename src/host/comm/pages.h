/* pages.h - GPUs: one page of host memory per rank, mapped by every process and every GPU of the
 * communicator. Each page has the head of a symm_ctl: state, abort word, call log. A kernel polls
 * its own page seldom; a kernel that gives up writes its peers'. Reference-counted, because thread
 * ranks share one set. The thread that creates or ends a communicator. */
#ifndef SYMM_PAGES_H_
#define SYMM_PAGES_H_

#include <stddef.h>
#include <stdint.h>

#include "device/common/records.h"
#include "base/status.h"

#define SYMM_PAGE_STRIDE 4096u
_Static_assert(offsetof(symm_ctl, epoch) <= SYMM_PAGE_STRIDE, "what GPUs' ranks use of it fits");

typedef struct symm_pages symm_pages;

/* Zeroed pages for nranks. fd: NULL, or receives a sealed descriptor of them, the caller's to close
 * (gauge fds). */
symmResult_t symm_pages_new(int nranks, int *fd, symm_pages **out);
/* Maps the pages behind a peer's fd, which stays the caller's. */
symmResult_t symm_pages_map(int nranks, int fd, symm_pages **out);
/* Makes the pages accessible to kernels, at address *device of the current device. The first call
 * registers them for all devices. */
symmResult_t symm_pages_register(symm_pages *p, uint64_t *device);
void symm_pages_ref(symm_pages *p);
void symm_pages_unref(symm_pages *p);
symm_ctl *symm_pages_ctl(const symm_pages *p, int rank);

#endif

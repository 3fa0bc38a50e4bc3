/* symm_nccl.h - the NCCL that a process has beside symm's drop-in for it, which has NCCL's name and
 * may stand before it. For programs that use both. */
#ifndef SYMM_NCCL_OPEN_H_
#define SYMM_NCCL_OPEN_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a NCCL that is not symm's own drop-in, and returns its handle for dlsym. It is looked for,
 * in this order:
 *  - file, if it is neither NULL nor "": there alone. SYMM_NCCL_LIB is what users set for it.
 *  - a loaded library whose name begins with libnccl.so. With loadedOnly != 0 there alone.
 *  - where pip puts it beside a loaded libtorch
 *  - the folders of LD_LIBRARY_PATH, of the program's own paths (DT_RPATH, DT_RUNPATH) and of the
 *    loader's defaults
 *  - the folders of CUDA in /usr/local/cuda, and what the loader finds by the name libnccl.so.2
 *
 * text (up to cap bytes): the file that was opened; without one the reason.
 * Requires: dlclose for each handle, or none, so that the library stays.
 * Order: any thread, before or after any other call; CUDA is not touched.
 * Errors: NULL. No message is logged. */
SYMM_API void *symmNcclOpen(const char *file, int loadedOnly, char *text, size_t cap);

#ifdef __cplusplus
}
#endif

#endif

/* symm_nccl.h - the NCCL that a process has beside symm's drop-in for it, which has NCCL's name and
 * may stand before it. For programs that use both. */
#ifndef SYMM_NCCL_OPEN_H_
#define SYMM_NCCL_OPEN_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a NCCL that is not symm's own drop-in. It is looked for, in this order:
 *  - file, if it is neither NULL nor "": there alone. SYMM_NCCL_LIB is what users set for it.
 *  - a loaded library whose name begins with libnccl.so. With loadedOnly != 0 there alone.
 *  - where pip puts it beside a loaded libtorch
 *  - the folders of LD_LIBRARY_PATH, of the program's own paths (DT_RPATH, DT_RUNPATH) and of the
 *    loader's defaults
 *  - the folders of CUDA in /usr/local/cuda, and what the loader finds by the name libnccl.so.2
 *
 * *library: a handle for dlsym. path: the file, up to cap bytes.
 * Requires: dlclose gives back what each call took. Without it the library stays.
 * Order: local, any thread; CUDA is not touched.
 * Errors: symmNotSupported: there is none, or file is none; symmGetLastError has the reason.
 * Nothing is logged, as the program may do without. */
SYMM_API symmResult_t symmNcclOpen(const char *file, int loadedOnly, void **library, char *path,
                                   size_t cap);

#ifdef __cplusplus
}
#endif

#endif

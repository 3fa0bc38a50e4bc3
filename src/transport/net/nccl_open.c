/* nccl_open.c - finds a NCCL (symm_nccl.h): for messages between domains of GPUs, for what the
 * drop-in forwards, and for symm-perf. Any thread. Lock: held while it is looked for; the places
 * that are collected meanwhile are static, for the loader may not be called where they are seen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "symm_nccl.h"

enum { PATH_BYTES = 4096, SEEN = 4, DIRS_BYTES = 64 << 10 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct { /* libraries that are loaded, by the beginnings of their files' names */
    const char *name;
    int n;
    char path[SEEN][PATH_BYTES];
} loaded;
static loaded seen;
static union { /* the loader's folders; their names stand behind the list */
    Dl_serinfo list;
    char bytes[DIRS_BYTES];
} dirs;

/* Its symbols stay its own: what it calls by name must not be the drop-in's. (Sanitizers refuse a
 * library that binds its own names first.) */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_NAMES 0
#else
#define OWN_NAMES RTLD_DEEPBIND
#endif

/* No code of NCCL's. The drop-in says who it is (nccl-tests-plugin/report.c), any copy of it. */
enum { WHO_IS_IT = 0x73796d6d };
static int is_symm(void *library) {
    const char *(*says)(int) = NULL;
    *(void **)(void *)&says = dlsym(library, "pncclGetErrorString");
    return says && !strcmp(says(WHO_IS_IT), "symm");
}
/* The handle, if it is a NCCL's. Others are closed. */
static void *nccl_only(void *library) {
    if (!library) return NULL;
    if (dlsym(library, "pncclGetVersion") && !is_symm(library)) return library;
    dlclose(library);
    return NULL;
}
static void *open_at(const char *path) {
    return nccl_only(dlopen(path, RTLD_NOW | RTLD_LOCAL | OWN_NAMES));
}
static void *open_in(const char *dir, size_t length) {
    char path[PATH_BYTES + 16];
    const int n = snprintf(path, sizeof path, "%.*s/libnccl.so.2", (int)length, dir);
    return length && n < (int)sizeof path ? open_at(path) : NULL;
}

/* ---- places ---------------------------------------------------------------------------------- */

static int see(struct dl_phdr_info *info, size_t size, void *arg) {
    loaded *l = arg;
    const char *file = strrchr(info->dlpi_name, '/');
    (void)size;
    if (!file || l->n == SEEN || strncmp(file + 1, l->name, strlen(l->name))) return 0;
    snprintf(l->path[l->n++], PATH_BYTES, "%s", info->dlpi_name);
    return 0;
}
static void *already_loaded(void) {
    void *found = NULL;
    seen.name = "libnccl.so", seen.n = 0;
    dl_iterate_phdr(see, &seen);
    for (int i = 0; i < seen.n && !found; i++)
        found = nccl_only(dlopen(seen.path[i], RTLD_NOW | RTLD_NOLOAD));
    return found;
}

/* Where pip puts it: site-packages/torch/lib and site-packages/nvidia/nccl/lib. */
static void *beside_torch(void) {
    char dir[PATH_BYTES + 32];
    seen.name = "libtorch", seen.n = 0;
    dl_iterate_phdr(see, &seen);
    if (!seen.n) return NULL;
    *strrchr(seen.path[0], '/') = 0;
    const int n = snprintf(dir, sizeof dir, "%s/../../nvidia/nccl/lib", seen.path[0]);
    return open_in(dir, (size_t)n);
}

/* Path by path: by its name alone the loader finds the drop-in, if that was preloaded. */
static void *on_library_path(void) {
    const char *list = getenv("LD_LIBRARY_PATH");
    void *found = NULL;
    for (size_t n; list && *list && !found; list += n + (list[n] == ':')) {
        n = strcspn(list, ":");
        found = open_in(list, n);
    }
    return found;
}
/* The program's, and the loader's own. */
static void *in_default_dirs(void) {
    void *found = NULL, *program = dlopen(NULL, RTLD_NOW);
    Dl_serinfo size;
    if (program && !dlinfo(program, RTLD_DI_SERINFOSIZE, &size) && size.dls_size <= sizeof dirs) {
        dirs.list = size;
        const int known = !dlinfo(program, RTLD_DI_SERINFO, &dirs.list);
        for (unsigned i = 0; known && i < dirs.list.dls_cnt && !found; i++) {
            const char *dir = dirs.list.dls_serpath[i].dls_name;
            found = open_in(dir, strlen(dir));
        }
    }
    if (program) dlclose(program);
    return found;
}

static void *look(void) {
    static const char *const last[] = {"/usr/local/cuda/lib64/libnccl.so.2",
                                       "/usr/local/cuda/lib/libnccl.so.2", "libnccl.so.2"};
    void *found = beside_torch();
    if (!found) found = on_library_path();
    if (!found) found = in_default_dirs();
    for (size_t i = 0; i < sizeof last / sizeof *last && !found; i++) found = open_at(last[i]);
    return found;
}

/* Nobody has logged the text: it is the caller's to say that the program needs one. */
static symmResult_t none(const char *file, const char *why, int loadedOnly) {
    char text[SYMM_ERR_TEXT];
    const char *set = getenv("SYMM_NCCL_LIB");
    if (file)
        SYMM_SAY(text, sizeof text, "%s%.200s: %.250s",
                 set && !strcmp(set, file) ? "SYMM_NCCL_LIB=" : "", file,
                 why ? why : "it is symm itself, or no NCCL");
    else
        SYMM_SAY(text, sizeof text, "no real NCCL is loaded%s",
                 loadedOnly ? ""
                            : ", beside libtorch or on the library path (SYMM_NCCL_LIB names one)");
    symm_status_adopt(text);
    return symmNotSupported;
}

symmResult_t symmNcclOpen(const char *file, int loadedOnly, void **library, char *path,
                          size_t cap) {
    struct link_map *map = NULL;
    if (file && !*file) file = NULL;
    if (!library || !path)
        return SYMM_ERR(symmInvalidArgument, "symmNcclOpen: %s is NULL",
                        library ? "path" : "library");
    pthread_mutex_lock(&lock);
    void *found = file ? open_at(file) : already_loaded();
    const char *why = file && !found ? dlerror() : NULL;
    if (!file && !loadedOnly && !found) found = look();
    pthread_mutex_unlock(&lock);
    if (!found) return none(file, why, loadedOnly);
    *library = found;
    snprintf(path, cap, "%s", !dlinfo(found, RTLD_DI_LINKMAP, &map) && map ? map->l_name : "");
    return symmSuccess;
}

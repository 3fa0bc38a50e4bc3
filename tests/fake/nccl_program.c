/* nccl_program.c - a program that uses NCCL, as check_nccl.sh needs one for the loader: linked with
 * it, or opening it (-DOPENS) by the name in argv[1]. Prints the version that it meets; with two
 * arguments more, that parameter, or what is wrong with it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int (*version_fn)(int *version);
typedef int (*param_fn)(const char *key, const char **value, int *len);
typedef const char *(*text_fn)(void *comm);

#ifdef OPENS
static void *find(void *from, const char *name) {
    return dlsym(from, name);
}
#else
int ncclGetVersion(int *version);
static void *find(void *from, const char *name) {
    (void)from;
    return dlsym(RTLD_DEFAULT, name);
}
#endif

int main(int argc, char **argv) {
    void *from = NULL;
    int version = 0, len;
    const char *value = NULL;
#ifdef OPENS
    from = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!from) return printf("%s\n", dlerror()), 1;
    version_fn ask = (version_fn)find(from, "ncclGetVersion");
    if (!ask || ask(&version)) return 1;
#else
    if (ncclGetVersion(&version)) return 1;
#endif
    printf("%d\n", version);
    if (argc < 3) return 0;
    for (int i = 3; i < argc; i++) /* other libraries that the program opens first */
        if (!dlopen(argv[i], RTLD_NOW | RTLD_LOCAL)) return printf("%s\n", dlerror()), 1;
    param_fn param = (param_fn)find(from, "ncclParamGetParameter");
    text_fn text = (text_fn)find(from, "ncclGetLastError");
    const int code = param(argv[2], &value, &len);
    printf("%d %s\n", code, code ? text(NULL) : value);
    return 0;
}

/* unit_nccl_open.c - symmNcclOpen: what it says of a file that is none, and of arguments. (Where it
 * looks: check_nccl.sh.) One thread. */
#include <stdlib.h>

#include "symm_nccl.h"
#include "t.h"

static void says(const char *file, const char *set, const char *begins) {
    void *library = &library;
    char path[8] = "before";
    if (set) setenv("SYMM_NCCL_LIB", set, 1);
    if (!set) unsetenv("SYMM_NCCL_LIB");
    T_ERR(symmNcclOpen(file, 0, &library, path, sizeof path), symmNotSupported);
    T_CHECKF(!strncmp(symmGetLastError(NULL), begins, strlen(begins)), "%s",
             symmGetLastError(NULL));
    T_CHECK(library == &library);
    T_STREQ(path, "before");
}
/* The variable is named where the file is the variable's. */
static void a_file_is_named_as_it_was_given(void) {
    says("/nowhere/libnccl.so.2", NULL, "/nowhere/libnccl.so.2: ");
    says("/nowhere/libnccl.so.2", "/elsewhere/libnccl.so.2", "/nowhere/libnccl.so.2: ");
    says("/nowhere/libnccl.so.2", "/nowhere/libnccl.so.2", "SYMM_NCCL_LIB=/nowhere/libnccl.so.2: ");
    says("/proc/self/exe", NULL, "/proc/self/exe: ");
}

static void arguments_are_checked(void) {
    void *library = NULL;
    char path[8];
    T_EXPECT_WARNINGS();
    T_ERR(symmNcclOpen(NULL, 1, NULL, path, sizeof path), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "library is NULL");
    T_ERR(symmNcclOpen(NULL, 1, &library, NULL, 0), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "path is NULL");
    T_ERR(symmNcclOpen("", 1, &library, path, sizeof path), symmNotSupported);
    T_MSG(symmGetLastError(NULL), "no real NCCL is loaded");
}

T_MAIN(T(a_file_is_named_as_it_was_given), T(arguments_are_checked))

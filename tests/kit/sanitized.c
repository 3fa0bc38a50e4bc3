/* sanitized.c - what the sanitizers ask a test program for, linked into their builds only. Their
 * runtimes look the names up among the program's dynamic symbols, so these must be visible there.
 * Any thread, no lock. */
#include "t.h"

#define SHOWN __attribute__((visibility("default")))

#if T_ASAN
/* Leaks count whatever the platform's default is; each test's child looks for them at its exit. */
SHOWN const char *__asan_default_options(void);
SHOWN const char *__asan_default_options(void) {
    return "detect_leaks=1";
}
#endif

#if T_TSAN
/* The dynamic linker frees the storage of a finished thread when its stack is used again. It is
 * told of the end by a word that the checker does not watch. */
SHOWN const char *__tsan_default_suppressions(void);
SHOWN const char *__tsan_default_suppressions(void) {
    return "race:_dl_deallocate_tls\n";
}
#endif

/* mpi_leaks.c - linked into the mp_ programs of AddressSanitizer builds: tells the leak check which
 * memory Open MPI never frees. Any thread, no lock. */
#define SHOWN __attribute__((visibility("default")))

/* No plug-in is unloaded before the check, so the names of its functions are known. */
SHOWN int dlclose(void *handle);
SHOWN int dlclose(void *handle) {
    (void)handle;
    return 0;
}

/* Whole stacks, because the C library has no frame pointers. */
SHOWN const char *__lsan_default_options(void);
SHOWN const char *__lsan_default_options(void) {
    return "fast_unwind_on_malloc=0:print_suppressions=0";
}

/* Nothing of this library may be listed here. */
SHOWN const char *__lsan_default_suppressions(void);
SHOWN const char *__lsan_default_suppressions(void) {
    return "leak:libmpi\nleak:libopen-rte\nleak:libopen-pal\nleak:libpmix\nleak:libevent\nleak:"
           "libhwloc\nleak:mca_\n";
}

/* mpi_leaks.c - linked into the mp_ programs of AddressSanitizer builds: tells the leak check what
 * belongs to Open MPI, which gives much of its memory back to nobody but the end of the process.
 * Any thread, no lock. */
#define SHOWN __attribute__((visibility("default")))

/* Nothing is unloaded before the check, so that what plug-ins leave behind still has their name. */
SHOWN int dlclose(void *handle);
SHOWN int dlclose(void *handle) {
    (void)handle;
    return 0;
}

/* Whole stacks: the C library in between has no frame pointers. */
SHOWN const char *__lsan_default_options(void);
SHOWN const char *__lsan_default_options(void) {
    return "fast_unwind_on_malloc=0:print_suppressions=0";
}

/* Nothing of ours may stand here. */
SHOWN const char *__lsan_default_suppressions(void);
SHOWN const char *__lsan_default_suppressions(void) {
    return "leak:libmpi\nleak:libopen-rte\nleak:libopen-pal\nleak:libpmix\nleak:libevent\nleak:"
           "libhwloc\nleak:mca_\n";
}

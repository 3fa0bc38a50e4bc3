/* unit_caches.c - what sysfs says of caches, as text and of this machine. */
#include "machine/cache_info.h"
#include "t.h"

static void sizes(void) {
    T_EQ(symm_caches_size("32768K\n"), 32 << 20);
    T_EQ(symm_caches_size("512K"), 512 << 10);
    T_EQ(symm_caches_size("3M\n"), 3 << 20);
    static const char *const none[] = {
        "", "\n", "K", "12", "12G", "-4x", "99999999999999999999K", "four"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        T_CHECKF(!symm_caches_size(none[i]), "\"%s\" was taken for a size", none[i]);
}

static void lists_of_cpus(void) {
    T_EQ(symm_caches_cpus("0\n"), 1);
    T_EQ(symm_caches_cpus("0-1"), 2);
    T_EQ(symm_caches_cpus("0-7,64-71\n"), 16);
    T_EQ(symm_caches_cpus("0,2,4"), 3);
    static const char *const none[] = {"",    "\n",  "x",  "3-1",       "0-",
                                       "0-x", "1;2", "-1", "0-99999999"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        T_CHECKF(!symm_caches_cpus(none[i]), "\"%s\" was taken for a list", none[i]);
}

/* More ranks have no more each; one has no more than there is. */
static void of_this_machine(void) {
    uint64_t before = symm_caches_keep(1);
    T_CHECK(before <= 4ull << 30);
    for (int n = 2; n <= 512; n *= 2) {
        const uint64_t each = symm_caches_keep(n);
        T_CHECK(each <= before && (each > 0) == (before > 0));
        before = each;
    }
}

T_MAIN(T(sizes), T(lists_of_cpus), T(of_this_machine))

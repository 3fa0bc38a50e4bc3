/* unit_domains.c - which ranks of a communicator are in which domain (domains.h): the numbering,
 * cuts, who stands for whom. Pure. */
#include "host/across/domains.h"
#include "t.h"

enum { MOST = 64 };

/* hosts: a letter for the host of each rank. */
static symm_domains sorted(const char *hosts, int rank, int cut) {
    symm_domain_key keys[MOST];
    symm_domains d;
    const int n = (int)strlen(hosts);
    T_CHECK(n <= MOST);
    for (int r = 0; r < n; r++) keys[r] = (symm_domain_key){7, (unsigned char)hosts[r], 1};
    T_OK(symm_domains_alloc(n, &d));
    symm_domains_sort(keys, rank, cut, &d);
    symm_domains_check(&d);
    return d;
}

/* want: a digit for the domain of each rank. */
static void expect(const char *hosts, int cut, const char *want, int least) {
    const int n = (int)strlen(hosts);
    for (int rank = 0; rank < n; rank++) {
        symm_domains d = sorted(hosts, rank, cut);
        int seen[MOST] = {0}, beside = 0;
        for (int r = 0; r < n; r++) {
            T_EQ(d.domain_of[r], want[r] - '0');
            T_EQ(d.place_of[r], seen[want[r] - '0']++);
            T_EQ(symm_domain_rank(&d, d.domain_of[r], d.place_of[r]), r);
            beside += hosts[r] == hosts[rank] && want[r] != want[rank];
        }
        T_EQ(d.domain, want[rank] - '0');
        T_EQ(d.size, seen[d.domain]);
        T_EQ(d.least, least);
        T_EQ(d.beside, beside);
        symm_domains_free(&d);
    }
}

static void domains_are_numbered_by_their_lowest_ranks(void) {
    expect("a", 0, "0", 1);
    expect("aaaa", 0, "0000", 4);
    expect("aabb", 0, "0011", 2);
    expect("abab", 0, "0101", 2);
    expect("bbaca", 0, "00121", 1);
    expect("zzzyzzy", 0, "0001001", 2);
}

static void a_cut_fills_domains_in_rank_order(void) {
    expect("aaaa", 1, "0123", 1);
    expect("aaaaa", 2, "00112", 1);
    expect("ababab", 2, "010123", 1);
    expect("aaaabb", 3, "000122", 1);
    expect("aabb", 2, "0011", 2);
    expect("aabb", 100, "0011", 2);
}

/* What crosses for a rank arrives at one place of each other domain, and that place sends to it. */
static void somebody_stands_for_each_rank(void) {
    static const char *const layouts[] = {"aabb", "abbb", "abcabc", "aaaaabbc", "abababbbb"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const int n = (int)strlen(layouts[i]);
        for (int rank = 0; rank < n; rank++) {
            symm_domains d = sorted(layouts[i], rank, 0);
            for (int q = 0; q < n; q++) {
                symm_domains other = sorted(layouts[i], q, 0);
                const int inside = d.domain_of[q] == d.domain;
                T_CHECK(symm_domain_stand_in(&d, q) >= 0 && symm_domain_stand_in(&d, q) < d.size);
                if (inside) T_EQ(symm_domain_stand_in(&d, q), d.place_of[q]);
                /* This rank stands for q in its domain where q sends to it, and only there. */
                if (!inside)
                    T_EQ(symm_domain_stand_in(&d, q) == d.place,
                         symm_domain_partner(&other, d.domain) == rank);
                symm_domains_free(&other);
            }
            T_EQ(symm_domain_is_rail(&d), d.place < d.least);
            symm_domains_free(&d);
        }
    }
}

static void other_networks_of_a_machine_are_other_domains(void) {
    const symm_domain_key keys[] = {{1, 2, 3}, {1, 2, 4}, {1, 2, 3}, {5, 2, 3}};
    symm_domains d;
    T_OK(symm_domains_alloc(4, &d));
    symm_domains_sort(keys, 1, 0, &d);
    T_EQ(d.ndomains, 3);
    T_EQ(d.domain, 1);
    T_EQ(d.size, 1);
    T_EQ(d.beside, 2);
    T_EQ(d.domain_of[2], 0);
    T_EQ(d.domain_of[3], 2);
    symm_domains_free(&d);
}

T_MAIN(T(domains_are_numbered_by_their_lowest_ranks), T(a_cut_fills_domains_in_rank_order),
       T(somebody_stands_for_each_rank), T(other_networks_of_a_machine_are_other_domains))

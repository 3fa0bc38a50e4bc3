/* domains.c - see domains.h. Pure; any thread, no lock. */
#include "domains.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/status.h"

void symm_domains_check(const symm_domains *d) {
    SYMM_ASSERT(d->nranks > 0 && d->rank >= 0 && d->rank < d->nranks);
    SYMM_ASSERT(d->ndomains > 0 && d->domain >= 0 && d->domain < d->ndomains);
    SYMM_ASSERT(d->first[0] == 0 && d->first[d->ndomains] == d->nranks);
    SYMM_ASSERT(d->size == symm_domain_size(d, d->domain) && d->place < d->size);
    SYMM_ASSERT(d->least > 0 && d->least <= d->size && d->beside >= 0);
    SYMM_ASSERT(symm_domain_rank(d, d->domain, d->place) == d->rank);
}

/* domain_of, place_of and sizes; returns how many domains there are. Of the ranks before with the
 * same key the last one is in the domain that this one joins, unless that is full. */
static int number(const symm_domain_key *keys, int cut, symm_domains *d) {
    int n = 0;
    for (int r = 0; r < d->nranks; r++) {
        int p = r - 1;
        while (p >= 0 && memcmp(&keys[p], &keys[r], sizeof keys[r])) p--;
        const int joins = p >= 0 && !(cut && d->sizes[d->domain_of[p]] >= cut);
        d->domain_of[r] = joins ? d->domain_of[p] : n++;
        d->place_of[r] = d->sizes[d->domain_of[r]]++;
    }
    return n;
}

symmResult_t symm_domains_alloc(int nranks, symm_domains *out) {
    const size_t n = (size_t)nranks;
    int *all = SYMM_FAIL_ALLOC(domains_alloc, calloc(5 * n + 1, sizeof *all));
    if (!all) return SYMM_ERR(symmOutOfMemory, "no memory to sort %d ranks by domains", nranks);
    *out = (symm_domains){.nranks = nranks,
                          .domain_of = all,
                          .place_of = all + n,
                          .order = all + 2 * n,
                          .sizes = all + 3 * n,
                          .first = all + 4 * n};
    return symmSuccess;
}

void symm_domains_sort(const symm_domain_key *keys, int rank, int cut, symm_domains *d) {
    SYMM_ASSERT(d->nranks > 0 && rank >= 0 && rank < d->nranks && cut >= 0);
    d->rank = rank;
    d->ndomains = number(keys, cut, d);
    d->least = d->nranks;
    for (int i = 0; i < d->ndomains; i++) {
        d->first[i + 1] = d->first[i] + d->sizes[i];
        if (d->sizes[i] < d->least) d->least = d->sizes[i];
    }
    for (int r = 0; r < d->nranks; r++) d->order[d->first[d->domain_of[r]] + d->place_of[r]] = r;
    d->domain = d->domain_of[rank];
    d->place = d->place_of[rank];
    d->size = d->sizes[d->domain];
    d->beside = -d->size;
    for (int r = 0; r < d->nranks; r++)
        d->beside += keys[r].hi == keys[rank].hi && keys[r].lo == keys[rank].lo;
    SYMM_CHECK(symm_domains_check(d));
}

void symm_domains_free(symm_domains *d) {
    free(d->domain_of);
    *d = (symm_domains){.nranks = 0};
}

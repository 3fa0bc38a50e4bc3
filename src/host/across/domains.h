/* domains.h - which ranks of a communicator are in which domain. Pure; any thread, no lock. */
#ifndef SYMM_ACROSS_DOMAINS_H_
#define SYMM_ACROSS_DOMAINS_H_

#include <stdint.h>

#include "symm.h"

typedef struct {     /* ranks with equal keys can map each other's memory */
    uint64_t hi, lo; /* the machine, which has the cores */
    uint64_t part;   /* of it: ranks of different ones do not reach each other */
} symm_domain_key;

typedef struct symm_domains {
    int nranks, rank;
    int ndomains, domain;      /* numbered by their lowest ranks; this rank's */
    int beside;                /* ranks of other domains on the same machine */
    int size, place;           /* ranks of this rank's domain; its number among them */
    int least;                 /* ranks of the smallest domain */
    int *domain_of, *place_of; /* [nranks] */
    int *first;                /* [ndomains + 1] where a domain begins in `order` */
    int *sizes;                /* [ndomains] */
    int *order;                /* [nranks] the ranks, domain by domain, in their order */
} symm_domains;

/* Memory for so many ranks. */
symmResult_t symm_domains_alloc(int nranks, symm_domains *out);
/* Sorts the ranks; cannot fail. cut: a domain has at most so many, in rank order; 0: as many as
 * have its key. */
void symm_domains_sort(const symm_domain_key *keys, int rank, int cut, symm_domains *d);
void symm_domains_free(symm_domains *d);
void symm_domains_check(const symm_domains *d);

static inline int symm_domain_size(const symm_domains *d, int domain) {
    return d->first[domain + 1] - d->first[domain];
}
/* The rank with that place in a domain. */
static inline int symm_domain_rank(const symm_domains *d, int domain, int place) {
    return d->order[d->first[domain] + place];
}
/* The place in this rank's domain that stands for a rank: the rank's own, or where what crosses for
 * it arrives and leaves. */
static inline int symm_domain_stand_in(const symm_domains *d, int rank) {
    return d->domain_of[rank] == d->domain ? d->place_of[rank] : d->place_of[rank] % d->size;
}
/* The rank of another domain that stands for this one. */
static inline int symm_domain_partner(const symm_domains *d, int domain) {
    return symm_domain_rank(d, domain, d->place % symm_domain_size(d, domain));
}
/* A rail is the ranks with one place in all domains: only rails cross where a message is cut. */
static inline int symm_domain_is_rail(const symm_domains *d) {
    return d->place < d->least;
}

#endif

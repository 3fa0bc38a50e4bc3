/* across_kit.h - communicators over several domains for tests, with ranks as threads and a mover
 * between them (net_threads.h). A layout has a letter for each rank's host. Each rank's thread
 * opens and uses its own communicator; the job is made before them. */
#ifndef ACROSS_KIT_H_
#define ACROSS_KIT_H_

#include <stdatomic.h>

#include "coll_kit.h"
#include "host/across/domains.h"
#include "host/life/comm_across.h"
#include "net_threads.h"
#include "symm_domains.h"
#include "transport/boot/boot.h"

typedef struct {
    const char *hosts; /* a letter for each rank's */
    int n;
    nt_hub *hub;
    symm_boot_group *group;
    symmComm_t inner[NT_RANKS];
    uint64_t seed;
    int env, cases, mode, gpus; /* gpus: how many there are; 0: the host backend */
    _Atomic int met, over;
} ak_job;

/* The inner communicators of all domains, on GPU rank % gpus where there are any, and what the
 * ranks meet by. */
static inline ak_job ak_new_on(const char *hosts, int gpus) {
    ak_job j = {.hosts = hosts, .n = (int)strlen(hosts), .seed = ck_seed(), .gpus = gpus};
    T_CHECK(j.n <= NT_RANKS);
    ck_domains = 0;
    for (int r = 0; r < j.n; r++) {
        symmComm_t comms[NT_RANKS];
        int members[NT_RANKS], devices[NT_RANKS], size = 0;
        for (int p = 0; p < r; p++)
            if (hosts[p] == hosts[r]) size = -1;
        if (size < 0) continue;
        for (int p = r; p < j.n; p++)
            if (hosts[p] == hosts[r]) members[size++] = p;
        for (int i = 0; i < size && gpus; i++) devices[i] = members[i] % gpus;
        T_OK(symmCommInitAll(comms, size, gpus ? devices : NULL));
        for (int i = 0; i < size; i++) {
            j.inner[members[i]] = comms[i];
            ck_domain_of[members[i]] = ck_domains;
        }
        ck_domains++;
    }
    j.hub = nt_hub_new(j.n);
    T_OK(symm_boot_group_create(j.n, &j.group));
    return j;
}

static inline ak_job ak_new(const char *hosts) {
    return ak_new_on(hosts, 0);
}

static inline symmComm_t ak_open(ak_job *j, int rank, symmResult_t status, symmResult_t want) {
    const symm_wait w = {.stage = "testing", .deadline_ns = symm_now_ns() + 10000000000ull};
    symm_domain_key keys[NT_RANKS];
    symm_domains *map;
    symm_boot *boot;
    symmComm_t comm = NULL;
    for (int r = 0; r < j->n; r++) keys[r] = (symm_domain_key){1, (unsigned char)j->hosts[r], 0};
    T_OK(symm_across_new_map(j->n, &map));
    symm_domains_sort(keys, rank, 0, map);
    T_OK(symm_boot_threads_open(j->group, rank, &boot));
    T_EQ(symm_across_open(boot, &w, status, map, j->inner[rank], nt_open(j->hub, rank), &comm),
         want);
    symm_boot_close(boot);
    return comm;
}

#endif

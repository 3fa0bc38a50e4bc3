/* multicast_kit.h - what the tests of multicast windows over the host driver share. Each rank uses
 * it from its own thread; no lock. */
#ifndef MULTICAST_KIT_H_
#define MULTICAST_KIT_H_

#include "host/window/multicast.h"
#include "transport/vmm/multicast_driver.h"
#include "heap_kit.h"

enum { MK_MOST = 5 };

/* Multicast windows, and never a GPU's driver. */
static inline void mk_wish(void) {
    setenv("SYMM_BACKEND", "host", 1);
    setenv("SYMM_MULTICAST", "1", 1);
    unsetenv("NCCL_NVLS_ENABLE");
}

static inline int mk_has(symmComm_t comm) {
    symmCommInfo_t info = {.size = sizeof info};
    T_OK(symmCommQuery(comm, &info));
    return info.multicast;
}

static inline int mk_whole(symmWindow_t win) {
    symmWindowInfo_t i = {.size = sizeof i};
    T_OK(symmWindowQuery(win, &i));
    return i.multicast;
}

/* Own memory, by the address for all: what each rank stores there, all find. */
static inline void mk_spreads(hk *k, char *own, uint64_t bytes) {
    void *cast, *each[MK_MOST];
    int members;
    T_OK(symmMemMulticastPtr(k->comm, own, bytes, &cast));
    T_OK(symmBarrier(k->comm, NULL));
    for (int root = 0; root < k->n; root++) {
        for (uint64_t at = 0; at < bytes; at += HK_MB) {
            T_EQ(symm_vmm_host_multicast((char *)cast + at, 64, each, &members), 0);
            T_EQ(members, k->n);
            for (int m = 0; root == k->rank && m < members; m++) hk_fill(each[m], 64, root, 3);
        }
        T_OK(symmBarrier(k->comm, NULL));
        for (uint64_t at = 0; at < bytes; at += HK_MB) hk_holds(own + at, 64, root, 3);
        T_OK(symmBarrier(k->comm, NULL));
    }
}

/* Memory of the user's that grows where it is. */
typedef struct {
    char *at;
    uint64_t room, bytes;
} mk_memory;

static inline void mk_extend(mk_memory *m, uint64_t bytes) {
    symm_vmm_handle *h;
    void *va = m->at;
    if (!m->at) T_EQ(symm_vmm_host.reserve(m->room, 0, &va), 0);
    m->at = va;
    T_EQ(symm_vmm_host.create(bytes, &h), 0);
    T_EQ(symm_vmm_host.map(m->at + m->bytes, bytes, 0, h), 0);
    T_EQ(symm_vmm_host.set_access(m->at + m->bytes, bytes), 0);
    T_EQ(symm_vmm_host.release(h), 0);
    m->bytes += bytes;
}
static inline void mk_release(mk_memory *m) {
    T_EQ(symm_vmm_host.unmap(m->at, m->bytes), 0);
    T_EQ(symm_vmm_host.unreserve(m->at, m->room), 0);
}

#endif

/* boot_kit.h - what the tests of the bootstraps share: blocks that know where they came from, and
 * ranks that meet over TCP, as processes or as threads. Each rank uses it from its own thread;
 * shared fields are atomics. */
#ifndef BOOT_KIT_H_
#define BOOT_KIT_H_

#include "mesh_kit.h"

#include "transport/boot/boot.h"
#include "transport/boot/boot_tcp.h"

typedef struct {
    kit k; /* barrier, codes and texts */
    symmUniqueId_t id;
    int ms;     /* deadline */
    int victim; /* the rank that the test is about */
    int maker;  /* the rank that makes the id, 0 */
    int how;    /* what it does */
} job;

static inline job *job_new(int victim, int how, int ms) {
    job *j = T_SHARED(sizeof *j);
    j->victim = victim;
    j->how = how;
    j->ms = ms;
    return j;
}

/* One rank makes the id, all get it. */
static inline void job_id(job *j, int rank, int n) {
    symm_log_rank(rank);
    if (rank == j->maker) T_OK(symm_boot_tcp_id(&j->id, "lo"));
    kit_barrier(&j->k, n);
}

static inline void job_note(job *j, int rank, symmResult_t code) {
    atomic_store(&j->k.code[rank], (int)code);
    snprintf(j->k.text[rank], sizeof j->k.text[rank], "%s", code ? symm_status_text() : "");
}

/* Ranks for which `in` says so all failed alike. */
static inline void job_same(const job *j, int n, const char *in, symmResult_t code,
                            const char *part) {
    const char *first = NULL;
    for (int r = 0; r < n; r++) {
        if (in[r] != 'x') continue;
        T_CHECKF(j->k.code[r] == (int)code, "rank %d: code %d, not %d (%s)", r, j->k.code[r], code,
                 j->k.text[r]);
        if (!first) first = j->k.text[r];
        T_STREQ(j->k.text[r], first);
        T_MSG(j->k.text[r], part);
    }
}

static inline unsigned char block_byte(int rank, size_t at, int salt) {
    return (unsigned char)(rank * 37 + (int)(at % 251) * 7 + salt);
}

/* One allgather with checked contents. */
static inline symmResult_t block_exchange(symm_boot *b, size_t bytes, int salt, symm_wait *w) {
    size_t n = (size_t)b->nranks;
    unsigned char *send = malloc(bytes + 1), *recv = malloc(n * bytes + 1);
    T_CHECK(send && recv);
    for (size_t i = 0; i < bytes; i++) send[i] = block_byte(b->rank, i, salt);
    memset(recv, 0xee, n * bytes + 1);
    symmResult_t status =
        symm_boot_allgather(b, bytes ? send : NULL, bytes ? recv : NULL, bytes, w);
    for (size_t i = 0; !status && i < n * bytes; i++)
        T_CHECKF(recv[i] == block_byte((int)(i / bytes), i % bytes, salt),
                 "rank %d: byte %zu of rank %zu's block is wrong", b->rank, i % bytes, i / bytes);
    T_EQ(recv[n * bytes], 0xee);
    free(send);
    free(recv);
    return status;
}

/* What every kind must be able to do. */
static inline void block_storm(symm_boot *b, int turns) {
    static const size_t sizes[] = {64, 0, 1, 100000};
    symm_wait w = kit_wait("storming", KIT_MS);
    for (int i = 0; i < turns; i++) T_OK(block_exchange(b, sizes[i % 4], i, &w));
}

/* A check that ends the process, or the wait, after a while. */
typedef struct {
    int left;
    symmResult_t code; /* success: SIGKILL */
} fuse;

static inline symmResult_t fuse_burn(void *arg) {
    fuse *f = arg;
    if (f->left-- > 0) return symmSuccess;
    if (!f->code) raise(SIGKILL);
    return SYMM_ERR(f->code, "the fuse has burnt");
}

#endif

/* unit_multicast.c - multicast objects of the host memory driver against the contract of
 * multicast_driver.h, within one process: each handle of an object is a member. Windows over them:
 * fault_multicast.c. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/stats.h"
#include "transport/vmm/mc_object.h"
#include "transport/vmm/multicast_driver.h"
#include "t.h"

#define V (&symm_vmm_host)
#define M (symm_vmm_host.multicast)
#define G (2ull << 20)

enum { MEMBERS = 3 };

#define DONE(call)     T_EQ(call, SYMM_CU_SUCCESS)
#define IS(call, code) T_EQ(call, SYMM_CU_##code)

typedef struct {
    symm_vmm_handle *object[MEMBERS], *memory[MEMBERS];
    char *own[MEMBERS];
    char *at;
} team;

static symm_vmm_handle *imported(symm_vmm_handle *from, uint64_t bytes) {
    symm_vmm_handle *h = NULL;
    int fd;
    DONE(V->export_fd(from, &fd));
    DONE(M->import(fd, NULL, bytes, &h));
    close(fd);
    return h;
}

/* An object of 4 granules and memory of 2 for each member; nobody has joined. */
static team begin(void) {
    team t;
    void *va;
    DONE(M->create(4 * G, MEMBERS, SYMM_SHARE_FD, &t.object[0]));
    for (int m = 1; m < MEMBERS; m++) t.object[m] = imported(t.object[m - 1], 4 * G);
    for (int m = 0; m < MEMBERS; m++) {
        DONE(V->create(2 * G, &t.memory[m]));
        DONE(V->reserve(2 * G, 0, &va));
        DONE(V->map(va, 2 * G, 0, t.memory[m]));
        DONE(V->set_access(va, 2 * G));
        t.own[m] = va;
    }
    DONE(V->reserve(4 * G, 0, &va));
    t.at = va;
    return t;
}

static void join_all(team *t) {
    for (int m = 0; m < MEMBERS; m++) DONE(M->join(t->object[m]));
}

static void end(team *t) {
    DONE(V->unreserve(t->at, 4 * G));
    for (int m = 0; m < MEMBERS; m++) {
        DONE(V->unmap(t->own[m], 2 * G));
        DONE(V->unreserve(t->own[m], 2 * G));
        DONE(V->release(t->memory[m]));
        DONE(V->release(t->object[m]));
    }
}

static void what_is_stored_goes_to_all(void) {
    team t = begin();
    void *each[MEMBERS];
    int members;
    join_all(&t);
    DONE(V->map(t.at, 4 * G, 0, t.object[1]));
    DONE(V->set_access(t.at, 4 * G));
    for (int m = 0; m < MEMBERS; m++) DONE(M->bind(t.object[m], 2 * G, t.memory[m], G, G));
    DONE(symm_vmm_host_multicast(t.at + 2 * G + 100, 50, each, &members));
    T_EQ(members, MEMBERS);
    for (int m = 0; m < MEMBERS; m++) T_CHECK(each[m] == t.own[m] + G + 100);
    DONE(symm_vmm_host_multicast(t.at + 2 * G, G, each, &members));
    IS(symm_vmm_host_multicast(t.at + 2 * G, G + 1, each, &members), NOT_SUPPORTED);
    IS(symm_vmm_host_multicast(t.at, 1, each, &members), NOT_SUPPORTED);
    IS(symm_vmm_host_multicast(t.at + 4 * G - 1, 2, each, &members), INVALID_VALUE);
    IS(symm_vmm_host_multicast(t.own[0], 1, each, &members), INVALID_VALUE);
    DONE(M->unbind(t.object[2], 2 * G, G));
    IS(symm_vmm_host_multicast(t.at + 2 * G, 1, each, &members), NOT_SUPPORTED);
    DONE(M->bind(t.object[2], 2 * G, t.memory[2], 0, G)); /* other bytes of it */
    DONE(symm_vmm_host_multicast(t.at + 2 * G, 1, each, &members));
    T_CHECK(each[2] == t.own[2]);
    DONE(V->unmap(t.at, 4 * G));
    IS(symm_vmm_host_multicast(t.at + 2 * G, 1, each, &members), INVALID_VALUE);
    end(&t);
}

static void nothing_happens_before_all_have_joined(void) {
    team t = begin();
    symm_vmm_handle *more = imported(t.object[0], 4 * G);
    for (int m = 0; m < MEMBERS; m++) {
        IS(M->bind(t.object[0], 0, t.memory[0], 0, G), INVALID_VALUE);
        T_CHECK(V->map(t.at, 4 * G, 0, t.object[0]) != SYMM_CU_SUCCESS);
        DONE(M->join(t.object[m]));
        IS(M->join(t.object[m]), INVALID_VALUE); /* it has */
    }
    IS(M->join(more), INVALID_VALUE); /* there are as many as there can be */
    IS(M->bind(more, 0, t.memory[0], 0, G), INVALID_VALUE);
    DONE(M->bind(t.object[0], 0, t.memory[0], 0, G));
    DONE(M->unbind(t.object[0], 0, G));
    DONE(V->release(more));
    end(&t);
}

static void wrong_bindings_are_refused(void) {
    team t = begin();
    symm_vmm_handle *one = t.object[0], *mem = t.memory[0];
    join_all(&t);
    IS(M->bind(one, 0, mem, 0, 0), INVALID_VALUE);
    IS(M->bind(one, 0, mem, 0, G / 2), INVALID_VALUE);
    IS(M->bind(one, 4096, mem, 0, G), INVALID_VALUE);
    IS(M->bind(one, 0, mem, 4096, G), INVALID_VALUE);
    IS(M->bind(one, 0, mem, 0, 3 * G), INVALID_VALUE);
    IS(M->bind(one, 0, mem, 2 * G, G), INVALID_VALUE);
    IS(M->bind(one, 4 * G, mem, 0, G), INVALID_VALUE);
    IS(M->bind(one, 3 * G, mem, 0, 2 * G), INVALID_VALUE);
    IS(M->bind(mem, 0, mem, 0, G), INVALID_HANDLE);
    IS(M->bind(one, 0, one, 0, G), INVALID_HANDLE);
    IS(M->bind(NULL, 0, mem, 0, G), INVALID_HANDLE);
    IS(M->bind(one, 0, NULL, 0, G), INVALID_HANDLE);
    DONE(M->bind(one, G, mem, 0, 2 * G));
    IS(M->bind(one, G, mem, 0, G), INVALID_VALUE); /* over what is there */
    IS(M->bind(one, 0, mem, 0, 2 * G), INVALID_VALUE);
    DONE(M->bind(one, 0, mem, 0, G));
    DONE(M->bind(t.object[1], G, t.memory[1], 0, G)); /* another member's */
    IS(M->unbind(one, G, G), INVALID_VALUE);          /* not as it was bound */
    IS(M->unbind(one, 2 * G, G), INVALID_VALUE);
    IS(M->unbind(t.object[2], 0, G), INVALID_VALUE);
    IS(M->unbind(mem, 0, G), INVALID_HANDLE);
    DONE(M->unbind(one, G, 2 * G));
    IS(M->unbind(one, G, 2 * G), INVALID_VALUE);
    end(&t);
}

static void an_object_is_no_memory_and_memory_no_object(void) {
    team t = begin();
    symm_vmm_handle *h = NULL;
    uint64_t bytes, id[2];
    void *base;
    int fd;
    join_all(&t);
    IS(V->identify(t.object[0], &bytes, id), INVALID_HANDLE);
    DONE(V->map(t.at, 4 * G, 0, t.object[0]));
    DONE(V->set_access(t.at, 4 * G));
    IS(V->retain(t.at, &h, &base, &bytes), INVALID_VALUE);
    DONE(V->unmap(t.at, 4 * G));
    DONE(V->export_fd(t.memory[0], &fd));
    IS(M->import(fd, NULL, 2 * G, &h), INVALID_VALUE);
    close(fd);
    DONE(V->export_fd(t.object[0], &fd));
    IS(V->import_fd(fd, 4 * G, &h), INVALID_VALUE);
    IS(M->import(fd, NULL, 2 * G, &h), INVALID_VALUE); /* another size */
    close(fd);
    IS(M->import(-1, NULL, 4 * G, &h), INVALID_VALUE);
    IS(M->import(fd, NULL, 4 * G, &h), INVALID_VALUE);
    IS(M->create(4 * G + 4096, MEMBERS, SYMM_SHARE_FD, &h), INVALID_VALUE);
    IS(M->create(4 * G, 0, SYMM_SHARE_FD, &h), INVALID_VALUE);
    IS(M->create(4 * G, 1, SYMM_SHARE_FD, NULL), INVALID_VALUE);
    T_CHECK(!h);
    end(&t);
}

/* The file of an object again, without its seals, or with another mark. */
static int copy_of(symm_vmm_handle *object, int sealed, char mark) {
    char page[64];
    int from, to = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    T_CHECK(to >= 0);
    DONE(V->export_fd(object, &from));
    const off_t bytes = lseek(from, 0, SEEK_END);
    T_EQ(ftruncate(to, bytes), 0);
    T_EQ(pread(from, page, 64, 0), 64);
    if (mark) page[0] = mark;
    T_EQ(pwrite(to, page, 64, 0), 64);
    if (sealed) T_EQ(fcntl(to, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    close(from);
    return to;
}
static void a_file_that_is_none_is_refused(void) {
    symm_vmm_handle *o, *h = NULL;
    DONE(M->create(4 * G, 1, SYMM_SHARE_FD, &o));
    for (int how = 0; how < 3; how++) {
        const int fd = copy_of(o, how > 0, how == 1 ? 'x' : 0);
        if (how < 2)
            IS(M->import(fd, NULL, 4 * G, &h),
               INVALID_VALUE); /* its maker can cut it; another mark */
        else
            DONE(M->import(fd, NULL, 4 * G, &h));
        close(fd);
    }
    DONE(V->release(h));
    DONE(V->release(o));
}

/* Access to a range of a mapping of memory and one of an object: neither changes. */
static void memory_and_objects_do_not_mix(void) {
    team t = begin();
    symm_vmm_handle *small, *mem;
    void *va;
    char byte = 0;
    int fd[2];
    join_all(&t);
    DONE(M->create(G, 1, SYMM_SHARE_FD, &small));
    DONE(M->join(small));
    DONE(V->create(G, &mem));
    DONE(V->reserve(2 * G, 0, &va));
    DONE(V->map(va, G, 0, small));
    DONE(V->map((char *)va + G, G, 0, mem));
    IS(V->set_access(va, 2 * G), INVALID_VALUE);
    DONE(V->set_access((char *)va + G, G));
    T_EQ(pipe(fd), 0);
    T_EQ(write(fd[1], (char *)va + G, 1), 1);
    T_EQ(write(fd[1], va, 1), -1); /* no page lies there */
    T_EQ(read(fd[0], &byte, 1), 1);
    close(fd[0]);
    close(fd[1]);
    DONE(V->unmap(va, 2 * G));
    DONE(V->unreserve(va, 2 * G));
    DONE(V->release(mem));
    DONE(V->release(small));
    end(&t);
}

/* The mapping keeps the object when its handles have gone. */
static void a_mapping_outlives_the_handles(void) {
    team t = begin();
    void *each[MEMBERS];
    int members;
    join_all(&t);
    DONE(V->map(t.at, 4 * G, 0, t.object[0]));
    for (int m = 0; m < MEMBERS; m++) DONE(M->bind(t.object[m], 0, t.memory[m], 0, G));
    for (int m = 0; m < MEMBERS; m++) DONE(V->release(t.object[m]));
    DONE(symm_vmm_host_multicast(t.at, G, each, &members));
    T_CHECK(each[1] == t.own[1]);
    IS(M->join(t.object[0]), INVALID_HANDLE);
    DONE(V->unmap(t.at, 4 * G));
    for (int m = 0; m < MEMBERS; m++) t.object[m] = NULL;
    DONE(V->unreserve(t.at, 4 * G));
    for (int m = 0; m < MEMBERS; m++) {
        DONE(V->unmap(t.own[m], 2 * G));
        DONE(V->unreserve(t.own[m], 2 * G));
        DONE(V->release(t.memory[m]));
    }
}

static void what_cannot_be_written_down_is_refused(void) {
    symm_vmm_handle *o, *mem;
    const uint64_t many = 4097;
    DONE(M->create(many * G, 1, SYMM_SHARE_FD, &o));
    DONE(M->join(o));
    DONE(V->create(G, &mem));
    for (uint64_t i = 0; i + 1 < many; i++) DONE(M->bind(o, i * G, mem, 0, G));
    IS(M->bind(o, (many - 1) * G, mem, 0, G), OUT_OF_MEMORY);
    DONE(M->unbind(o, 7 * G, G));
    DONE(M->bind(o, (many - 1) * G, mem, 0, G));
    DONE(V->release(mem));
    DONE(V->release(o));
}

/* ---- read while it changes ---- */

/* One binding and another take turns in the same entry. A mixture of both, of the first's offset
 * and the second's size, would hold what only the second holds. */
static const symm_mc_bound small = {.off = 0, .bytes = G, .id = {1, 1}, .from = 0},
                           large = {.off = G, .bytes = 3 * G, .id = {2, 2}, .from = 8 * G};
static symm_mc_object *changing;
static int seen, changed;

static void changes_rank(int rank, int n, void *arg) {
    symm_mc_bound b;
    (void)n, (void)arg;
    for (int turn = 0; rank == 0 && (turn < 3000 || !__atomic_load_n(&seen, __ATOMIC_RELAXED));
         turn++) {
        const symm_mc_bound *is = turn % 2 ? &large : &small;
        T_EQ(symm_mc_object_bind(changing, is), 0);
        T_EQ(symm_mc_object_unbind(changing, is->off, is->bytes), 0);
    }
    while (rank == 1 && !__atomic_load_n(&changed, __ATOMIC_ACQUIRE)) {
        if (!symm_mc_object_find(changing, 0, 2 * G, G, &b)) continue;
        T_CHECK(!memcmp(&b, &large, sizeof b));
        __atomic_store_n(&seen, 1, __ATOMIC_RELAXED);
    }
    if (rank == 0) __atomic_store_n(&changed, 1, __ATOMIC_RELEASE);
}
static void a_binding_is_read_whole(void) {
    int fd;
    T_EQ(symm_mc_object_make(4 * G, 1, &changing, &fd), 0);
    T_EQ(symm_mc_object_join(changing), 0);
    T_THREADS(2, changes_rank, NULL);
    symm_mc_object_close(changing);
    close(fd);
}

T_MAIN(T(what_is_stored_goes_to_all), T(nothing_happens_before_all_have_joined),
       T(wrong_bindings_are_refused), T(an_object_is_no_memory_and_memory_no_object),
       T(a_file_that_is_none_is_refused), T(memory_and_objects_do_not_mix),
       T(a_mapping_outlives_the_handles), T(what_cannot_be_written_down_is_refused),
       T(a_binding_is_read_whole))

/* unit_mesh_tcp.c - what is special about the control mesh between hosts: messages that go in
 * parts, several threads that send, looks at what waits, LEFT, the agreement of those that are
 * left. What all kinds do is in unit_mesh.c and unit_agree.c. Ranks are forked processes; no
 * lock. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mesh_kit.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "transport/mesh/mesh_tcp.h"

enum { THREADS = 3, EACH = 3000 };

static void run(int n, t_rank_fn fn, int value) {
    T_FORK(n, fn, kit_new(SYMM_MESH_TCP, value));
}

static int unsent(symm_mesh *m, int peer) {
    return atomic_load(&((symm_mesh_tcp *)m)->links[peer].unsent);
}

static void fill(uint8_t *p, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

static void expect_filled(const uint8_t *p, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++) T_EQ(p[i], (uint8_t)(seed * 31 + i * 7 + (i >> 8)));
}

static size_t length_of(unsigned i) {
    return i % 5 ? SYMM_MESH_MAX - i % 3000 : i % 70;
}

/* A small buffer to send from: few messages fit, and they go in parts. The other one is larger than
 * a packet of the loopback interface: with less the kernel waits for its timers. */
static void set_buffers(symm_mesh *m, int peer) {
    int bytes = 16 << 10, more = 200 << 10;
    T_EQ(setsockopt(symm_mesh_fd(m, peer), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    T_EQ(setsockopt(symm_mesh_fd(m, peer), SOL_SOCKET, SO_RCVBUF, &more, sizeof more), 0);
}

/* Sends messages, from number i on, until one does not go. How many have gone. */
static unsigned send_until_full(symm_mesh *m, int peer, unsigned i) {
    uint8_t buf[SYMM_MESH_MAX];
    int state = MESH_READY;
    for (;; i++) {
        fill(buf, length_of(i), i);
        T_OK(m->ops->put(m, peer, SYMM_MSG_BOOT, buf, length_of(i), NULL, 0, &state));
        if (state != MESH_READY) break;
        T_CHECK(i < 100000);
    }
    T_EQ(state, MESH_NOTHING);
    return i;
}

static void receive(symm_mesh *m, int peer, unsigned from, unsigned to) {
    symm_wait w = kit_wait("receiving", KIT_MS);
    uint8_t buf[SYMM_MESH_MAX];
    size_t got;
    for (unsigned i = from; i < to; i++) {
        T_OK(symm_mesh_recv(m, peer, SYMM_MSG_BOOT, buf, sizeof buf, &got, NULL, 0, &w));
        T_EQ(got, length_of(i));
        expect_filled(buf, got, i);
    }
}

/* ---- in parts ---- */

/* What sends the rest: value 0 push, 1 a wait of the owner, 2 its take, 3 the next put, 4 the end
 * of the mesh. */
static void parts_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("an answer", KIT_MS);
    set_buffers(m, !rank);
    kit_barrier(k, n);
    if (rank == 0) {
        unsigned sent = 0;
        int value = 0, state = MESH_NOTHING;
        while (!unsent(m, 1)) sent = send_until_full(m, 1, sent);
        T_EQ(unsent(m, 1), 1);
        atomic_store(&k->code[0], (int)sent);
        kit_barrier(k, n); /* it reads from now on */
        if (k->value == 4) {
            symm_mesh_close(m);
            return;
        }
        for (uint64_t end = symm_now_ns() + 5000000000ull; unsent(m, 1);) {
            T_CHECK(symm_now_ns() < end);
            if (k->value == 0) symm_mesh_push(m);
            if (k->value == 1) break;
            if (k->value == 2) T_OK(m->ops->take(m, 1, &state));
            if (k->value == 2) T_EQ(state, MESH_NOTHING);
            if (k->value == 3) break;
            usleep(100);
        }
        if (k->value == 3) {
            uint8_t buf[SYMM_MESH_MAX];
            fill(buf, length_of(sent), sent);
            for (state = MESH_NOTHING; state != MESH_READY; usleep(100))
                T_OK(m->ops->put(m, 1, SYMM_MSG_BOOT, buf, length_of(sent), NULL, 0, &state));
        }
        if (k->value == 1) /* the answer comes when all has been read */
            T_OK(symm_mesh_recv(m, 1, SYMM_MSG_VOTE, &value, sizeof value, NULL, NULL, 0, &w));
    } else {
        kit_barrier(k, n);
        const unsigned sent = (unsigned)atomic_load(&k->code[0]);
        receive(m, 0, 0, sent + (k->value == 3));
        int value = 5;
        if (k->value == 1)
            T_OK(symm_mesh_send(m, 0, SYMM_MSG_VOTE, &value, sizeof value, NULL, 0, &w));
        if (k->value == 4) {
            T_ERR(symm_mesh_recv(m, 0, SYMM_MSG_BOOT, NULL, 0, NULL, NULL, 0, &w), symmRemoteError);
            symm_mesh_close(m);
            return;
        }
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void messages_go_in_parts(void) {
    T_EXPECT_WARNINGS();
    for (int value = 0; value < 5; value++) run(2, parts_rank, value);
}

/* Rank 1 reads nothing at all: the end of rank 0 waits a moment, and no longer. */
static void stuck_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    set_buffers(m, !rank);
    kit_barrier(k, n);
    if (rank == 0) {
        send_until_full(m, 1, 0);
        uint64_t start = symm_now_ns();
        symm_mesh_close(m);
        T_CHECK(symm_now_ns() - start < 1500000000ull);
    }
    kit_barrier(k, n);
    if (rank == 1) symm_mesh_close(m);
}

static void the_end_waits_for_room_a_moment(void) {
    run(2, stuck_rank, 0);
}

/* A rank ends its mesh while its last messages wait for room at the peer, and has not read what the
 * peer sent: they arrive. */
static void unread_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("the last words", KIT_MS);
    set_buffers(m, !rank);
    if (rank == 1) T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, &w, sizeof w, NULL, 0, &w));
    kit_barrier(k, n);
    if (rank == 0) {
        uint8_t buf[SYMM_MESH_MAX];
        unsigned i = 0;
        for (int waits = 0; waits < 6000; i++) {
            fill(buf, length_of(i), i);
            T_OK(symm_mesh_send(m, 1, SYMM_MSG_BOOT, buf, length_of(i), NULL, 0, &w));
            T_EQ(ioctl(symm_mesh_fd(m, 1), SIOCOUTQNSD, &waits), 0);
        }
        T_EQ(unsent(m, 1), 0);
        atomic_store(&k->code[0], (int)i);
        symm_mesh_close(m);
        kit_barrier(k, n);
        return;
    }
    kit_barrier(k, n);
    receive(m, 0, 0, (unsigned)atomic_load(&k->code[0]));
    T_ERR(symm_mesh_recv(m, 0, SYMM_MSG_BOOT, NULL, 0, NULL, NULL, 0, &w), symmRemoteError);
    symm_mesh_close(m);
}

static void the_last_words_of_who_did_not_read_arrive(void) {
    T_EXPECT_WARNINGS();
    run(2, unread_rank, 0);
}

/* A message comes in two parts with a pause between them: it is whole, and the wait costs no
 * processor time. */
static void pause_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("the rest", KIT_MS);
    uint8_t raw[SYMM_WIRE_HEADER + 1000];
    kit_barrier(k, n);
    if (rank == 1) {
        const symm_wire_msg head = {
            .type = SYMM_MSG_BOOT, .bytes = 1000, .from = 1, .to = 0, .nonce = k->addrs[0].nonce};
        const size_t first = (size_t)k->value, fd = (size_t)symm_mesh_fd(m, 0);
        symm_wire_put(&head, raw);
        fill(raw + SYMM_WIRE_HEADER, 1000, 9);
        T_EQ(send((int)fd, raw, first, 0), first);
        kit_sleep(300);
        T_EQ(send((int)fd, raw + first, sizeof raw - first, 0), sizeof raw - first);
        int value = 1;
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_VOTE, &value, sizeof value, NULL, 0, &w));
    } else {
        struct rusage before, after;
        size_t got;
        int value = 0;
        getrusage(RUSAGE_SELF, &before);
        T_OK(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, raw, 1000, &got, NULL, 0, &w));
        getrusage(RUSAGE_SELF, &after);
        T_EQ(got, 1000);
        expect_filled(raw, 1000, 9);
        const long ms = (after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec -
                         before.ru_stime.tv_sec) *
                            1000 +
                        (after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec -
                         before.ru_stime.tv_usec) /
                            1000;
        T_CHECKF(ms < 100, "%ld ms of processor time while nothing came", ms);
        T_OK(symm_mesh_recv(m, 1, SYMM_MSG_VOTE, &value, sizeof value, &got, NULL, 0, &w));
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void half_a_message_is_waited_for(void) {
    run(2, pause_rank, 1);
    run(2, pause_rank, SYMM_WIRE_HEADER);
    run(2, pause_rank, SYMM_WIRE_HEADER + 700);
}

/* ---- several threads ---- */

typedef struct {
    symm_mesh *m;
    int index;
} sender;

typedef struct {
    int thread, number;
    uint8_t body[1500];
} numbered;

/* post does not say whether it was sent, so these go by put. */
static void *send_many(void *arg) {
    const sender *s = arg;
    numbered x = {.thread = s->index};
    for (int i = 0; i < EACH; i++) {
        int state = MESH_NOTHING;
        const size_t bytes = 8 + (size_t)(i * 37 % 1500);
        x.number = i;
        fill(x.body, sizeof x.body, (unsigned)(i + s->index));
        while (state != MESH_READY) {
            T_OK(s->m->ops->put(s->m, 1, SYMM_MSG_BOOT, &x, bytes, NULL, 0, &state));
            T_CHECK(state == MESH_READY || state == MESH_NOTHING);
            if (state == MESH_NOTHING) usleep(50);
            if (i % 7 == 0) symm_mesh_push(s->m);
        }
    }
    return NULL;
}

static void threads_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("many", KIT_MS);
    set_buffers(m, !rank);
    kit_barrier(k, n);
    if (rank == 0) {
        pthread_t thread[THREADS];
        sender s[THREADS];
        for (int i = 0; i < THREADS; i++) {
            s[i] = (sender){m, i};
            T_EQ(pthread_create(&thread[i], NULL, send_many, &s[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) T_EQ(pthread_join(thread[i], NULL), 0);
        int value;
        T_OK(symm_mesh_recv(m, 1, SYMM_MSG_VOTE, &value, sizeof value, NULL, NULL, 0, &w));
    } else {
        int next[THREADS] = {0};
        for (int i = 0; i < THREADS * EACH; i++) {
            numbered x;
            size_t got;
            T_OK(symm_mesh_recv(m, 0, SYMM_MSG_BOOT, &x, sizeof x, &got, NULL, 0, &w));
            T_CHECK(x.thread >= 0 && x.thread < THREADS);
            T_EQ(x.number, next[x.thread]++);
            T_EQ(got, 8 + (size_t)(x.number * 37 % 1500));
            expect_filled(x.body, got - 8, (unsigned)(x.number + x.thread));
        }
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_VOTE, &next[0], sizeof next[0], NULL, 0, &w));
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void threads_that_send_at_once_mix_nothing(void) {
    run(2, threads_rank, 0);
}

/* ---- looks at what waits ---- */

static void peek_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("looking", KIT_MS);
    symm_mesh_news news;
    uint8_t buf[SYMM_MESH_MAX];
    T_EQ(symm_mesh_peek(m, rank, &news), 0);
    T_EQ(symm_mesh_peek(m, !rank, &news), 0);
    T_CHECK(!news.left && !news.revoked);
    kit_barrier(k, n);
    if (rank == 1) {
        for (unsigned i = 0; i < 10; i++) {
            fill(buf, length_of(i), i);
            T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, buf, length_of(i), NULL, 0, &w));
        }
        kit_barrier(k, n);
        kit_barrier(k, n);
        symm_agree_revoke(m, symmOutOfMemory, 1, "a stage", "no memory there");
        symm_agree_revoke(m, symmTimeout, 1, "a stage", "a later one");
        symm_mesh_leave(m);
        kit_barrier(k, n);
    } else {
        kit_barrier(k, n);
        T_EQ(symm_mesh_peek(m, 1, &news), 1);
        T_CHECK(!news.left && !news.revoked);
        kit_barrier(k, n);
        kit_barrier(k, n);
        for (int i = 0; i < 3; i++) { /* nothing is taken away */
            T_EQ(symm_mesh_peek(m, 1, &news), 1);
            T_CHECK(news.left && news.revoked);
            T_EQ(news.vote.code, symmOutOfMemory);
            T_EQ(news.vote.rank, 1);
            T_STREQ(news.vote.text, "no memory there");
            T_STREQ(news.vote.stage, "a stage");
        }
        receive(m, 1, 0, 10);
        T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, NULL, 0, NULL, NULL, 0, &w), symmOutOfMemory);
        T_MSG(symm_status_text(), "rank 1 revoked: no memory there");
        T_EQ(symm_mesh_peek(m, 1, &news), 1);
        T_EQ(news.vote.code, symmTimeout);
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void a_look_finds_news_behind_messages(void) {
    T_EXPECT_WARNINGS();
    run(2, peek_rank, 0);
}

/* The owner has taken half a message: what is behind it is found all the same. */
static void half_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("looking", KIT_MS);
    uint8_t raw[SYMM_WIRE_HEADER + 100];
    symm_mesh_news news;
    int state;
    if (rank == 1) {
        const symm_wire_msg head = {
            .type = SYMM_MSG_BOOT, .bytes = 100, .from = 1, .nonce = k->addrs[0].nonce};
        const int fd = symm_mesh_fd(m, 0);
        symm_wire_put(&head, raw);
        fill(raw + SYMM_WIRE_HEADER, 100, 3);
        T_EQ(send(fd, raw, 50, 0), 50);
        kit_barrier(k, n);
        kit_barrier(k, n);
        T_EQ(send(fd, raw + 50, sizeof raw - 50, 0), sizeof raw - 50);
        symm_agree_revoke(m, symmTimeout, 1, "a stage", "too late");
        kit_barrier(k, n);
    } else {
        kit_barrier(k, n);
        T_OK(symm_mesh_take(m, 1, &state));
        T_EQ(state, MESH_NOTHING);
        T_EQ(symm_mesh_peek(m, 1, &news), 1); /* half a message is something too */
        T_CHECK(!news.revoked);
        kit_barrier(k, n);
        kit_barrier(k, n);
        T_EQ(symm_mesh_peek(m, 1, &news), 1);
        T_CHECK(news.revoked && news.vote.code == symmTimeout);
        T_OK(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, raw, 100, NULL, NULL, 0, &w));
        expect_filled(raw, 100, 3);
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void a_look_finds_news_behind_half_a_message(void) {
    run(2, half_rank, 0);
}

/* A look beside the owner, which takes: it always finds whole messages. */
static void *look_on(void *arg) {
    kit *k = ((void **)arg)[1];
    symm_mesh *m = ((void **)arg)[0];
    symm_mesh_news news;
    int found = 0;
    while (!atomic_load(&k->flag)) {
        symm_mesh_peek(m, 1, &news);
        found += news.left && !atomic_load(&k->flag); /* rank 1 leaves once that is set */
        T_CHECK(!news.revoked);
        symm_mesh_push(m);
    }
    T_EQ(found, 0);
    for (int i = 0; !news.left && i < 100000; i++) symm_mesh_peek(m, 1, &news);
    T_EQ(news.left, 1);
    return NULL;
}

static void beside_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    void *args[2] = {m, k};
    pthread_t thread;
    if (rank == 0) {
        T_EQ(pthread_create(&thread, NULL, look_on, args), 0);
        receive(m, 1, 0, 4000);
        kit_barrier(k, n);
        kit_barrier(k, n);
        atomic_store(&k->flag, 1);
        T_EQ(pthread_join(thread, NULL), 0);
    } else {
        symm_wait w = kit_wait("many", KIT_MS);
        uint8_t buf[SYMM_MESH_MAX];
        for (unsigned i = 0; i < 4000; i++) {
            fill(buf, length_of(i), i);
            T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, buf, length_of(i), NULL, 0, &w));
        }
        kit_barrier(k, n);
        kit_barrier(k, n);
        while (!atomic_load(&k->flag)) usleep(100);
        symm_mesh_leave(m);
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void a_look_beside_the_owner_finds_whole_messages(void) {
    run(2, beside_rank, 0);
}

static void other_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("looking", KIT_MS);
    symm_mesh_news news = {.left = 7};
    int value = 1;
    T_OK(symm_mesh_send(m, !rank, SYMM_MSG_BOOT, &value, sizeof value, NULL, 0, &w));
    symm_mesh_leave(m);
    symm_mesh_push(m);
    kit_barrier(k, n);
    T_EQ(symm_mesh_peek(m, !rank, &news), 0);
    T_CHECK(!news.left && !news.revoked);
    T_OK(symm_mesh_recv(m, !rank, SYMM_MSG_BOOT, &value, sizeof value, NULL, NULL, 0, &w));
    T_OK(symm_agree(m, symmSuccess, &w, NULL));
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void other_kinds_have_no_news(void) {
    kit_run(SYMM_MESH_UNIX, 2, other_rank, 0);
    kit_run(SYMM_MESH_THREADS, 2, other_rank, 0);
}

/* ---- LEFT ---- */

/* Rank 2 leaves, and its connections stand: to the others it is gone. value: what they do. */
static void left_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("going on", KIT_MS);
    int value = 4, dead = -1;
    kit_barrier(k, n);
    uint64_t start = symm_now_ns();
    if (rank == 2) {
        T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, &value, sizeof value, NULL, 0, &w));
        symm_mesh_leave(m);
        kit_barrier(k, n);
        symm_mesh_close(m);
        return;
    }
    if (k->value == 0 && rank == 0) {
        T_OK(symm_mesh_recv(m, 2, SYMM_MSG_BOOT, &value, sizeof value, NULL, NULL, 0, &w));
        T_ERR(symm_mesh_recv(m, 2, SYMM_MSG_BOOT, NULL, 0, NULL, NULL, 0, &w), symmRemoteError);
        T_MSG(symm_status_text(), "rank 2 died or left (going on)");
        T_ERR(symm_mesh_send(m, 2, SYMM_MSG_BOOT, NULL, 0, NULL, 0, &w), symmRemoteError);
    }
    if (rank == 0 && k->value) /* so that it is the LEFT that the agreement meets */
        T_OK(symm_mesh_recv(m, 2, SYMM_MSG_BOOT, &value, sizeof value, NULL, NULL, 0, &w));
    if (k->value == 1) {
        T_ERR(symm_agree(m, symmSuccess, &w, &dead), symmRemoteError);
        T_EQ(dead, 2);
    }
    if (k->value == 2) {
        symm_ranks out = {{0}}, two = {{4}};
        uint32_t call;
        T_OK(symm_survive(m, SYMM_SURVIVE_GONE, symmSuccess, &out, &call, &w));
        T_CHECK(symm_ranks_same(&out, &two));
    }
    T_CHECK(k->value == 0 || !symm_mesh_alive(m, 2));
    T_CHECK(symm_now_ns() - start < 2000000000ull);
    kit_barrier(k, n);
    symm_mesh_close(m);
}

static void who_has_left_is_gone(void) {
    T_EXPECT_WARNINGS();
    for (int value = 0; value < 3; value++) run(3, left_rank, value);
}

/* ---- those that are left ---- */

static void survive_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    symm_wait w = kit_wait("surviving", KIT_MS);
    symm_ranks out = {{0}}, dead = {{1ull << k->value}};
    uint32_t call;
    int who = -1;
    kit_barrier(k, n);
    T_OK(symm_survive(m, SYMM_SURVIVE_ASK, symmSuccess, &out, &call, &w));
    T_EQ(symm_ranks_count(&out), 0);
    T_OK(symm_agree(m, symmSuccess, &w, NULL));
    if (rank == k->value) kill(getpid(), SIGKILL);
    T_ERR(symm_agree(m, symmSuccess, &w, &who), symmRemoteError);
    T_EQ(who, k->value);
    T_OK(symm_survive(m, SYMM_SURVIVE_GONE, symmSuccess, &out, &call, &w));
    T_CHECK(symm_ranks_same(&out, &dead));
    T_OK(symm_survive(m, SYMM_SURVIVE_LIST, symmSuccess, &out, &call, &w));
    T_EQ(call, 3);
    symm_mesh_close(m);
}

static void survivors_agree(void) {
    T_EXPECT_WARNINGS();
    for (int n = 3; n <= 4; n++)
        for (int rank = 0; rank < n; rank++)
            T_FORK_DIES(n, rank, survive_rank, kit_new(SYMM_MESH_TCP, rank));
}

/* ---- what the kernel is asked for ---- */

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    T_EQ(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

/* Rank 1 has less patience than the others. */
static void options_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_wait w = kit_wait("connecting", KIT_MS);
    symm_mesh *m = kit_listen(k, rank, n);
    const int ms = rank == 1 ? 7000 : 10000, idle = ms / 2000;
    if (rank == 1) symm_mesh_patience(m, ms);
    T_OK(symm_mesh_connect(m, k->addrs, NULL, &w));
    for (int p = 0; p < n; p++) {
        const int fd = symm_mesh_fd(m, p);
        if (p == rank) continue;
        T_EQ(option(fd, IPPROTO_TCP, TCP_NODELAY), 1);
        T_EQ(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
        T_EQ(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), idle);
        T_EQ(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 1);
        T_EQ(option(fd, IPPROTO_TCP, TCP_KEEPCNT), ms / 1000 - idle);
        T_EQ(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), ms);
    }
    T_EQ(SYMM_STAT_GET(fds), n - 1);
    kit_barrier(k, n);
    symm_mesh_close(m);
    T_EQ(SYMM_STAT_GET(fds), 0);
}

static void silent_connections_are_probed(void) {
    run(3, options_rank, 0);
}

T_MAIN(T(messages_go_in_parts), T(the_end_waits_for_room_a_moment),
       T(the_last_words_of_who_did_not_read_arrive), T(half_a_message_is_waited_for),
       T(threads_that_send_at_once_mix_nothing), T(a_look_finds_news_behind_messages),
       T(a_look_finds_news_behind_half_a_message), T(a_look_beside_the_owner_finds_whole_messages),
       T(other_kinds_have_no_news), T(who_has_left_is_gone), T(survivors_agree),
       T(silent_connections_are_probed))

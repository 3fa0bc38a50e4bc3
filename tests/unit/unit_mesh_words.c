/* unit_mesh_words.c - messages of the control mesh that belong to no exchange (SYMM_MSG_WORD): who
 * takes them, in which order, in parts, behind and before others, what is no such message, and a
 * peer with no room for one. Ranks are forked processes. No lock: words are heard under the mesh's
 * own, and looked at by the thread that has called it, or behind a join. */
#include "mesh_kit.h"

#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "transport/mesh/mesh_tcp.h"

enum { FEW = 3500, MANY = 9000, MOST = 1000000 };

typedef struct { /* what a rank has heard; numbers from 1 */
    uint64_t last;
    int again;
} ear;

static void hear(void *arg, int peer, const void *payload) {
    ear *e = arg;
    uint64_t w[2];
    memcpy(w, payload, sizeof w);
    T_EQ(peer, 1);
    T_EQ(w[0], e->last + 1);
    T_EQ(w[1], ~w[0]);
    e->last = w[0];
}
static void again(void *arg) {
    ((ear *)arg)->again++;
}

static symm_mesh *open_with(kit *k, int rank, int n, ear *e) {
    static const symm_mesh_words words = {hear, again};
    symm_mesh *m = kit_listen(k, rank, n);
    symm_wait w = kit_wait("connecting", KIT_MS);
    *e = (ear){0, 0};
    symm_mesh_set_words(m, &words, e);
    T_OK(symm_mesh_connect(m, k->addrs, NULL, &w));
    kit_barrier(k, n);
    return m;
}
static void run(int n, t_rank_fn fn, int value) {
    T_FORK(n, fn, kit_new(SYMM_MESH_TCP, value));
}

static int offer(symm_mesh *m, uint64_t number) {
    const uint64_t w[2] = {number, ~number};
    return symm_mesh_offer(m, 0, SYMM_MSG_WORD, w, sizeof w);
}
/* Words until there is no room, which stays so: what the system has sent it frees a little later.
 * The number of the next one. */
static uint64_t fill(symm_mesh *m) {
    uint64_t number = 1;
    do {
        while (number < MOST && offer(m, number)) number++;
        usleep(100000);
    } while (number < MOST && offer(m, number) && ++number);
    T_CHECK(number < MOST);
    return number;
}
static void say(symm_mesh *m, uint64_t *number, int count) {
    for (int i = 0; i < count; i++) {
        ++*number;
        while (!offer(m, *number)) usleep(100);
    }
}
static void send_int(symm_mesh *m, int value) {
    symm_wait w = kit_wait("sending", KIT_MS);
    T_OK(symm_mesh_send(m, 0, SYMM_MSG_BOOT, &value, sizeof value, NULL, 0, &w));
}
static void expect_int(symm_mesh *m, int value) {
    symm_wait w = kit_wait("receiving", KIT_MS);
    int got = -1;
    T_OK(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, &got, sizeof got, NULL, NULL, 0, &w));
    T_EQ(got, value);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* value 1: nobody looks; the owner passes over them. */
static void order_rank(int rank, int n, void *arg) {
    kit *k = arg;
    ear e;
    symm_mesh_news news;
    symm_mesh *m = open_with(k, rank, n, &e);
    symm_wait w = kit_wait("passing over", KIT_MS);
    uint64_t number = 0;
    for (int i = 0; rank == 1 && i < 3; i++) {
        say(m, &number, 10);
        send_int(m, i);
    }
    if (rank == 1) say(m, &number, 1);
    if (rank == 1) symm_mesh_leave(m);
    kit_barrier(k, n);
    for (int i = 0; rank == 0 && i < 3; i++) {
        for (int ms = 0; !k->value; ms++) { /* the kernel sends the last ones a little later */
            T_EQ(symm_mesh_peek(m, 1, &news), 1);
            if (news.left || ms == KIT_MS) break;
            usleep(1000);
        }
        if (!k->value) T_CHECK(news.left && !news.revoked);
        T_EQ(e.last, k->value ? 10 * i : 10 * i + 10); /* none behind another message */
        expect_int(m, i);
        T_EQ(e.last, 10 * i + 10);
    }
    if (rank == 0) {
        if (!k->value) T_EQ(symm_mesh_peek(m, 1, &news), 1);
        T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, NULL, 0, NULL, NULL, 0, &w), symmRemoteError);
        T_EQ(e.last, 31);
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}
static void words_are_heard_in_order(void) {
    T_EXPECT_WARNINGS();
    run(2, order_rank, 0);
    run(2, order_rank, 1);
}

static int await_bytes(symm_mesh *m, int bytes) {
    int there = 0;
    for (int ms = 0; ms < 3000 && there < bytes; ms++) {
        T_EQ(ioctl(symm_mesh_fd(m, 1), FIONREAD, &there), 0);
        usleep(1000);
    }
    return there == bytes;
}
/* Many of them before a message, and a revocation behind many: the owner alone. */
static void many_rank(int rank, int n, void *arg) {
    kit *k = arg;
    ear e;
    symm_mesh *m = open_with(k, rank, n, &e);
    symm_wait w = kit_wait("hearing", KIT_MS);
    uint64_t number = 0;
    const int room = 4 << 20;
    if (rank == 0) /* best effort: the kernel may have a lower limit */
        setsockopt(symm_mesh_fd(m, 1), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    kit_barrier(k, n);
    if (rank == 1) {
        say(m, &number, MANY);
        send_int(m, 5);
        say(m, &number, MANY);
        symm_agree_revoke(m, symmTimeout, 1, "a stage", "behind many");
        kit_barrier(k, n);
    } else {
        expect_int(m, 5);
        T_EQ(e.last, MANY);
        kit_barrier(k, n);
        /* So it is looked for in what lies there, if all of it does. */
        if (await_bytes(m, MANY * 48 + 32 + (int)sizeof(symm_vote))) symm_mesh_mark_dead(m, 1);
        T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, NULL, 0, NULL, NULL, 0, &w), symmTimeout);
        T_EQ(e.last, 2 * MANY);
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}
static void a_message_is_found_behind_many_words(void) {
    T_EXPECT_WARNINGS();
    run(2, many_rank, 0);
}

typedef struct {
    symm_mesh *m;
    _Atomic int over;
} looker;

static void *look_on(void *arg) {
    looker *l = arg;
    symm_mesh_news news;
    while (!atomic_load(&l->over)) symm_mesh_peek(l->m, 1, &news);
    return NULL;
}
/* Another thread looks meanwhile. Whoever takes them, they come in order. */
static void beside_rank(int rank, int n, void *arg) {
    kit *k = arg;
    ear e;
    looker l = {open_with(k, rank, n, &e), 0};
    pthread_t thread;
    uint64_t number = 0;
    if (!rank) T_EQ(pthread_create(&thread, NULL, look_on, &l), 0);
    for (int i = 0; i < 1000; i++) {
        if (rank == 1) {
            say(l.m, &number, i % 40);
            send_int(l.m, i);
        } else {
            expect_int(l.m, i);
        }
    }
    kit_barrier(k, n);
    if (!rank) {
        atomic_store(&l.over, 1);
        T_EQ(pthread_join(thread, NULL), 0);
        T_EQ(e.last, 25 * 780);
    }
    kit_barrier(k, n);
    symm_mesh_close(l.m);
}
static void a_look_beside_the_owner_keeps_the_order(void) {
    run(2, beside_rank, 0);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void put_raw(kit *k, uint8_t *raw, int type, size_t bytes) {
    const symm_wire_msg head = {
        .type = (uint16_t)type, .bytes = (uint32_t)bytes, .from = 1, .nonce = k->addrs[0].nonce};
    const uint64_t w[2] = {1, ~1ull};
    symm_wire_put(&head, raw);
    memcpy(raw + SYMM_WIRE_HEADER, w, bytes);
}

/* A word, and a message of the owner's, byte by byte. value: who looks before each byte comes, 0
 * another thread would, 1 the owner, 2 both in turn. */
static void parts_rank(int rank, int n, void *arg) {
    kit *k = arg;
    ear e;
    symm_mesh *m = open_with(k, rank, n, &e);
    uint8_t raw[2][SYMM_WIRE_HEADER + SYMM_MESH_WORD];
    symm_mesh_news news;
    int state = MESH_NOTHING;
    put_raw(k, raw[0], SYMM_MSG_WORD, SYMM_MESH_WORD);
    put_raw(k, raw[1], SYMM_MSG_BOOT, SYMM_MESH_WORD);
    for (size_t i = 0; i < sizeof raw; i++) {
        if (rank == 1) T_EQ(send(symm_mesh_fd(m, 0), (uint8_t *)raw + i, 1, 0), 1);
        kit_barrier(k, n);
        usleep(200);
        if (rank == 0 && (k->value == 0 || (k->value == 2 && i % 2)))
            symm_mesh_peek(m, 1, &news);
        else if (rank == 0)
            T_OK(symm_mesh_take(m, 1, &state));
        if (rank == 0 && i + 2 >= sizeof raw[0]) T_EQ(e.last, i + 1 >= sizeof raw[0]);
        if (rank == 0 && i + 1 < sizeof raw) T_EQ(state, MESH_NOTHING);
        kit_barrier(k, n);
    }
    if (rank == 0 && state != MESH_READY) T_OK(symm_mesh_take(m, 1, &state));
    if (rank == 0) T_EQ(state, MESH_READY);
    if (rank == 0) T_EQ(m->in.head.type, SYMM_MSG_BOOT);
    kit_barrier(k, n);
    symm_mesh_close(m);
}
static void a_word_may_come_in_parts(void) {
    for (int value = 0; value < 3; value++) run(2, parts_rank, value);
}

/* The owner waits for the rest of a message of which another thread has taken the beginning. */
static void rest_rank(int rank, int n, void *arg) {
    kit *k = arg;
    ear e;
    symm_mesh *m = open_with(k, rank, n, &e);
    uint8_t raw[SYMM_WIRE_HEADER];
    symm_wait w = kit_wait("the rest", KIT_MS);
    symm_mesh_news news;
    put_raw(k, raw, SYMM_MSG_COMMIT, 0);
    if (rank == 1) T_EQ(send(symm_mesh_fd(m, 0), raw, sizeof raw - 1, 0), sizeof raw - 1);
    kit_barrier(k, n);
    usleep(1000);
    if (rank == 0) T_EQ(symm_mesh_peek(m, 1, &news), 1);
    kit_barrier(k, n);
    if (rank == 1) usleep(100000);
    if (rank == 1) T_EQ(send(symm_mesh_fd(m, 0), raw + sizeof raw - 1, 1, 0), 1);
    if (rank == 0) T_OK(symm_mesh_recv(m, 1, SYMM_MSG_COMMIT, NULL, 0, NULL, NULL, 0, &w));
    kit_barrier(k, n);
    symm_mesh_close(m);
}
static void the_owner_gets_the_rest_of_a_message(void) {
    run(2, rest_rank, 0);
}

/* Half a word is no message, and so is half a header of another one: who goes to take the next
 * message of this peer would wait for one that may not be due. */
static void half_rank(int rank, int n, void *arg) {
    kit *k = arg;
    ear e;
    symm_mesh *m = open_with(k, rank, n, &e);
    uint8_t raw[2][SYMM_WIRE_HEADER + SYMM_MESH_WORD];
    const int upto[] = {7, 40, sizeof raw[0] + 31, sizeof raw[0] + 32, sizeof raw};
    symm_wait w = kit_wait("the other half", KIT_MS);
    symm_mesh_news news;
    put_raw(k, raw[0], SYMM_MSG_WORD, SYMM_MESH_WORD);
    put_raw(k, raw[1], SYMM_MSG_BOOT, SYMM_MESH_WORD);
    for (int i = 0, at = 0; i < 5; at = upto[i++]) {
        const int bytes = upto[i] - at;
        if (rank == 1) T_EQ(send(symm_mesh_fd(m, 0), (uint8_t *)raw + at, (size_t)bytes, 0), bytes);
        kit_barrier(k, n);
        if (rank == 0) {
            T_CHECK(await_bytes(m, bytes));
            T_EQ(symm_mesh_peek(m, 1, &news), 1);
            T_EQ(news.message, i >= 3);
            T_EQ(e.last, i >= 2);
        }
        kit_barrier(k, n);
    }
    if (rank == 0) T_OK(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, raw, 16, NULL, NULL, 0, &w));
    if (rank == 0) T_EQ(symm_mesh_peek(m, 1, &news) + news.message, 0);
    kit_barrier(k, n);
    symm_mesh_close(m);
}
static void half_a_word_is_no_message(void) {
    run(2, half_rank, 0);
}

/* ---- what is wrong --------------------------------------------------------------------------- */

static void bad_rank(int rank, int n, void *arg) {
    kit *k = arg;
    ear e;
    symm_mesh *m = open_with(k, rank, n, &e);
    symm_wait w = kit_wait("trusting nobody", KIT_MS);
    symm_mesh_news news;
    if (rank == 1) T_EQ(symm_mesh_offer(m, 0, SYMM_MSG_WORD, &w, 8), 1);
    kit_barrier(k, n);
    if (rank == 0) {
        T_EQ(symm_mesh_peek(m, 1, &news), 1);
        T_CHECK(news.message); /* for the owner to find what is wrong with it */
        T_EQ(e.last, 0);
        T_ERR(symm_mesh_recv(m, 1, SYMM_MSG_BOOT, NULL, 0, NULL, NULL, 0, &w), symmInternalError);
        T_MSG(symm_status_text(), "a word of another length");
        T_EQ(symm_mesh_hung_up(m, 1), 1);
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}
static void a_word_of_another_length_ends_the_connection(void) {
    T_EXPECT_WARNINGS();
    run(2, bad_rank, 0);
}

/* There is no room: said at once, and again each time that unsent messages are pushed. Nobody is
 * there: nothing is left to be said. */
static void full_rank(int rank, int n, void *arg) {
    kit *k = arg;
    ear e;
    symm_mesh *m = open_with(k, rank, n, &e);
    symm_mesh_news news;
    uint64_t number = 1;
    if (rank == 1) {
        number = fill(m);
        T_EQ(offer(m, number), 0);
        kit_barrier(k, n);
        do symm_mesh_push(m); /* the other one reads now */
        while (!offer(m, number));
        T_CHECK(e.again);
        while (atomic_load(&((symm_mesh_tcp *)m)->links[0].unsent)) symm_mesh_push(m);
        k->value = (int)number;
        kit_barrier(k, n);
        kit_barrier(k, n);
        const uint64_t since = symm_now_ns();
        symm_mesh_mark_dead(m, 0);
        T_EQ(offer(m, ++number), 1);
        T_EQ(symm_mesh_offer(m, 1, SYMM_MSG_WORD, &number, sizeof number), 1); /* this rank */
        T_CHECK(symm_now_ns() - since < 1000000000u);
    } else {
        kit_barrier(k, n);
        for (int i = 0; i < 100000 && !atomic_load(&k->arrived); i++) {
            symm_mesh_peek(m, 1, &news);
            usleep(100);
        }
        kit_barrier(k, n);
        for (int i = 0; i < 100000 && e.last != (uint64_t)k->value; i++) {
            symm_mesh_peek(m, 1, &news);
            usleep(100);
        }
        T_EQ(e.last, k->value);
        kit_barrier(k, n);
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}
static void who_finds_no_room_is_told(void) {
    run(2, full_rank, 0);
}

/* Its last words go behind what has found no room, once there is room. value 1: it revokes, too. */
static void last_rank(int rank, int n, void *arg) {
    kit *k = arg;
    ear e;
    symm_mesh_news news = {0};
    symm_mesh *m = open_with(k, rank, n, &e);
    uint64_t number = 1;
    if (rank == 1) {
        number = fill(m);
        for (int i = 0; i < 20 && k->value; i++) /* all but the first ones are repetitions */
            symm_agree_revoke(m, symmTimeout, 1, "a stage", i ? "again" : "behind many");
        symm_mesh_leave(m);
        T_EQ(offer(m, number), 0);
        atomic_store(&k->flag, (int)number);
        for (int ms = 0; ms < KIT_MS && atomic_load(&((symm_mesh_tcp *)m)->links[0].unsent); ms++) {
            symm_mesh_push(m);
            usleep(1000);
        }
    } else {
        kit_await_flag(k, 1);
        for (int ms = 0; ms < KIT_MS / 4 && !news.left; ms++) {
            symm_mesh_peek(m, 1, &news);
            usleep(1000);
        }
        T_EQ(news.left, 1);
        T_EQ(news.revoked, k->value);
        if (k->value) T_MSG(news.vote.text, "behind many");
        T_EQ(e.last + 1, atomic_load(&k->flag));
    }
    kit_barrier(k, n);
    symm_mesh_close(m);
}
static void last_words_go_behind_what_found_no_room(void) {
    run(2, last_rank, 0);
    run(2, last_rank, 1);
}

/* They stand behind more words than one look takes, and the peer has ended: one look finds them. */
static void ended_rank(int rank, int n, void *arg) {
    kit *k = arg;
    ear e;
    symm_mesh_news news;
    symm_mesh *m = open_with(k, rank, n, &e);
    uint64_t number = 0;
    const int room = 4 << 20;
    if (rank == 0) /* best effort */
        setsockopt(symm_mesh_fd(m, 1), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    kit_barrier(k, n);
    if (rank == 1) say(m, &number, FEW);
    if (rank == 1) symm_mesh_leave(m);
    if (rank == 1) symm_mesh_close(m);
    kit_barrier(k, n);
    if (rank == 1) return;
    for (int ms = 0; ms < 3000 && !symm_mesh_hung_up(m, 1); ms++) usleep(1000);
    T_EQ(symm_mesh_hung_up(m, 1), 1); /* so all of it has come */
    T_EQ(symm_mesh_peek(m, 1, &news), 1);
    T_EQ(news.left, 1);
    T_EQ(e.last, FEW);
    symm_mesh_close(m);
}
static void last_words_of_who_has_ended_are_found_at_once(void) {
    run(2, ended_rank, 0);
}

/* Nobody has said what to do with them: they are dropped. */
static void dropped_rank(int rank, int n, void *arg) {
    kit *k = arg;
    symm_mesh *m = kit_open(k, rank, n);
    uint64_t number = 0;
    kit_barrier(k, n);
    if (rank == 1) say(m, &number, 100);
    if (rank == 1) send_int(m, 3);
    if (rank == 0) expect_int(m, 3);
    symm_mesh_push(m);
    kit_barrier(k, n);
    symm_mesh_close(m);
}
static void words_of_nobody_are_dropped(void) {
    run(2, dropped_rank, 0);
}

T_MAIN(T(words_are_heard_in_order), T(a_message_is_found_behind_many_words),
       T(a_look_beside_the_owner_keeps_the_order), T(a_word_may_come_in_parts),
       T(the_owner_gets_the_rest_of_a_message), T(half_a_word_is_no_message),
       T(a_word_of_another_length_ends_the_connection), T(who_finds_no_room_is_told),
       T(last_words_go_behind_what_found_no_room), T(last_words_of_who_has_ended_are_found_at_once),
       T(words_of_nobody_are_dropped))

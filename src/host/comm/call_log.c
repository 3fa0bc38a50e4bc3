/* call_log.c - the log of call_log.h. A rank writes its own log and reads the others' while they
 * write (call_ring.h). */
#include "call_log.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "device/host/reduce.h"
#include "transport/boot/boot_text.h"
#include "call_ring.h"
#include "comm.h"

enum { WORDS = SYMM_CALL_LOG_TEXT / 8, CALL_TEXT = 96, SEQ_BITS = 48, SWAPPED = 1 << 15 };

static void put(uint64_t *at, uint64_t v) {
    symm_word_set(at, v);
}
static uint64_t get(const uint64_t *at) {
    return symm_word_get(at);
}
static const symm_call_log *of(const symm_comm *c, int rank) {
    return &symm_comm_ctl(c, rank)->call_log;
}

/* What is true of this rank's own log. Its peers only read it. */
static void log_check(const symm_call_log *d) {
    SYMM_ASSERT(d->calls >> SEQ_BITS == 0);
    SYMM_ASSERT(d->ended <= d->step);
    SYMM_ASSERT(!d->step || d->steps[d->step % SYMM_CALL_LOG_STEPS].seq == d->step);
}

/* ---- writing --------------------------------------------------------------------------------- */

void symm_call_log_begin(symm_comm *c, const symm_call *k) {
    symm_call_log *d = &c->ctl->call_log;
    const uint64_t seq = d->calls + 1;
    SYMM_CHECK(log_check(d));
    SYMM_ASSERT(k->coll < symmNumColls && k->type < symmNumTypes && k->op <= SYMM_OP_PREMUL);
    SYMM_ASSERT(k->root >= 0 && k->root < c->nranks);
    const uint64_t what = (uint64_t)k->root << 48 | (uint64_t)k->coll << 32 | k->type << 16 |
                          (k->swapped ? SWAPPED : 0) | k->op;
    const uint64_t words[] = {d->refused << SEQ_BITS | seq, k->count, what};
    symm_entry_write(&d->ring[seq % SYMM_CALL_LOG_CALLS].seq, words, 3);
    put(&d->calls, seq);
}

void symm_call_log_undo(symm_comm *c) {
    symm_call_log *d = &c->ctl->call_log;
    const uint64_t seq = d->calls;
    SYMM_ASSERT(seq > 0 && d->ring[seq % SYMM_CALL_LOG_CALLS].seq);
    put(&d->ring[seq % SYMM_CALL_LOG_CALLS].seq, 0);
    put(&d->refused, d->refused + 1); /* the next call has the same number, in other words */
    put(&d->calls, seq - 1);
}

void symm_call_log_capture(symm_comm *c) {
    put(&c->ctl->call_log.captured, c->ctl->call_log.captured + 1);
}

void symm_call_log_enter(symm_comm *c, const char *stage) {
    if (!c->ctl) return;
    symm_call_log *d = &c->ctl->call_log;
    const uint64_t seq = d->step + 1;
    uint64_t words[1 + WORDS] = {seq};
    snprintf((char *)(words + 1), SYMM_CALL_LOG_TEXT, "%s", stage);
    symm_entry_write(&d->steps[seq % SYMM_CALL_LOG_STEPS].seq, words, 1 + WORDS);
    put(&d->step, seq);
    SYMM_CHECK(log_check(d));
}

void symm_call_log_leave(symm_comm *c) {
    if (c->ctl) put(&c->ctl->call_log.ended, c->ctl->call_log.step);
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct {
    uint64_t count, what;
} called;

/* 0 if the entry is not in the log (any more). */
static int get_call(const symm_call_log *d, uint64_t seq, called *k) {
    uint64_t words[3];
    if (!symm_entry_read(&d->ring[seq % SYMM_CALL_LOG_CALLS].seq, words, 3)) return 0;
    *k = (called){words[1], words[2]};
    return (words[0] & ((1ull << SEQ_BITS) - 1)) == seq;
}

static int get_step(const symm_call_log *d, uint64_t seq, char *text) {
    uint64_t words[1 + WORDS];
    if (!symm_entry_read(&d->steps[seq % SYMM_CALL_LOG_STEPS].seq, words, 1 + WORDS)) return 0;
    memcpy(text, words + 1, SYMM_CALL_LOG_TEXT);
    text[SYMM_CALL_LOG_TEXT - 1] = 0;
    return words[0] == seq;
}

const char *symm_type_name(uint64_t type) {
    static const char *const types[] = {"int8",    "uint8",    "int32",      "uint32",
                                        "int64",   "uint64",   "float16",    "float32",
                                        "float64", "bfloat16", "float8e4m3", "float8e5m2"};
    _Static_assert(sizeof types / sizeof *types == symmNumTypes, "a type has no name");
    return type < symmNumTypes ? types[type] : "?";
}

static const char *call_text(const called *k, char *text) {
    static const char *const ops[] = {"sum", "prod", "max", "min", "avg", "premulsum"};
    const unsigned root = k->what >> 48, coll = k->what >> 32 & 0xffff,
                   type = k->what >> 16 & 0xffff, op = k->what & (SWAPPED - 1);
    _Static_assert(sizeof ops / sizeof *ops == SYMM_OP_PREMUL + 1, "a reduction has no name");
    if (coll >= symmNumColls || type >= symmNumTypes || op > SYMM_OP_PREMUL) {
        /* another process may have written there what it should not */
        snprintf(text, CALL_TEXT, "?");
        return text;
    }
    const symm_coll_row *row = &symm_colls[coll];
    const int reduces = row->flags & SYMM_COLL_REDUCES;
    char of_root[32] = "";
    if (row->flags & SYMM_COLL_ROOT) snprintf(of_root, sizeof of_root, ", root %u", root);
    if (symm_coll_varies(row) && root) /* instead of rooted ones */
        snprintf(of_root, sizeof of_root, ", %u calls of a group", root + 1);
    char of_count[24] = "";
    if (!symm_coll_varies(row))
        snprintf(of_count, sizeof of_count, "%llu ", (unsigned long long)k->count);
    if (!symm_coll_moves(row))
        snprintf(text, CALL_TEXT, "%s", row->call);
    else
        snprintf(text, CALL_TEXT, "%s of %s%s%s%s%s%s%s", row->call, of_count, symm_type_name(type),
                 reduces ? " (" : "", reduces ? ops[op] : "", reduces ? ")" : "", of_root,
                 k->what & SWAPPED ? ", in place" : "");
    return text;
}

/* ---- who differs ----------------------------------------------------------------------------- */

/* Among the ranks with have[] set: most[] marks those that agree with the majority, odd[] those
 * that agree with the first of the others. 0: all agree. */
static int two_sides(const void *said, size_t bytes, const unsigned char *have, int n,
                     unsigned char *most, unsigned char *odd, int *who) {
    const char *at = said;
    int best = -1, best_votes = 0, first = 0, same = 1;
    who[1] = -1;
    while (first < n && !have[first]) first++;
    for (int r = first; r < n; r++)
        same &= !have[r] || !memcmp(at + (size_t)r * bytes, at + (size_t)first * bytes, bytes);
    if (same) return 0;
    for (int r = 0; r < n; r++) {
        int votes = 0;
        for (int p = 0; p < n && have[r]; p++)
            votes += have[p] && !memcmp(at + (size_t)r * bytes, at + (size_t)p * bytes, bytes);
        if (votes > best_votes) best = r, best_votes = votes;
    }
    for (int r = 0; r < n; r++) {
        most[r] = have[r] && !memcmp(at + (size_t)r * bytes, at + (size_t)best * bytes, bytes);
        if (have[r] && !most[r] && who[1] < 0) who[1] = r;
    }
    for (int r = 0; r < n; r++)
        odd[r] = have[r] && !memcmp(at + (size_t)r * bytes, at + (size_t)who[1] * bytes, bytes);
    who[0] = best;
    return 1;
}

static int call_differs(const symm_comm *c, uint64_t seq, int oldest, char *text, size_t cap) {
    called said[SYMM_MAX_RANKS] = {{0, 0}};
    unsigned char have[SYMM_MAX_RANKS] = {0}, most[SYMM_MAX_RANKS], odd[SYMM_MAX_RANKS];
    char a[CALL_TEXT], b[CALL_TEXT], ra[60], rb[60];
    int who[2], graphs = 0;
    for (int r = 0; r < c->nranks; r++) {
        have[r] = symm_comm_sees(c, r) && get_call(of(c, r), seq, &said[r]);
        graphs |= get(&of(c, r)->captured) != 0;
    }
    if (!two_sides(said, sizeof said[0], have, c->nranks, most, odd, who)) return 0;
    SYMM_SAY(text, cap, "call %llu%s%s: %s: %s; %s: %s", (unsigned long long)seq,
             oldest && seq > 1 ? " (or an older one)" : "", graphs ? ", graphs not counted" : "",
             symm_boot_ranks(most, c->nranks, ra, sizeof ra), call_text(&said[who[0]], a),
             symm_boot_ranks(odd, c->nranks, rb, sizeof rb), call_text(&said[who[1]], b));
    return 1;
}

/* A step of set-up, among the ranks that have begun it. */
static int step_differs(const symm_comm *c, uint64_t seq, char *text, size_t cap) {
    char said[SYMM_MAX_RANKS][SYMM_CALL_LOG_TEXT] = {{0}}, ra[60], rb[60];
    unsigned char have[SYMM_MAX_RANKS] = {0}, most[SYMM_MAX_RANKS], odd[SYMM_MAX_RANKS];
    int who[2];
    for (int r = 0; r < c->nranks; r++)
        have[r] = symm_comm_sees(c, r) && get_step(of(c, r), seq, said[r]);
    if (!two_sides(said, sizeof said[0], have, c->nranks, most, odd, who)) return 0;
    SYMM_SAY(text, cap, SYMM_CALL_LOG_DIFFERENT ": %s: %s; %s: %s",
             symm_boot_ranks(most, c->nranks, ra, sizeof ra), said[who[0]],
             symm_boot_ranks(odd, c->nranks, rb, sizeof rb), said[who[1]]);
    return 1;
}

/* Whether a is in a step of set-up that b has not begun, and b has issued more collectives. The
 * calls are read first: a rank that issued one after that step shows the step too. */
static int is_astray(const symm_comm *c, int a, int b) {
    const symm_call_log *x = of(c, a), *y = of(c, b);
    const uint64_t ahead = get(&y->calls), step = get(&x->step);
    if (!symm_comm_sees(c, a) || !symm_comm_sees(c, b)) return 0;
    if (get(&x->captured) || get(&y->captured)) return 0;
    return step != get(&x->ended) && ahead > get(&x->calls) && get(&y->step) < step;
}

/* The first collective that b has issued and a has not. 0: there is none. */
static int next_text(const symm_comm *c, int a, int b, char *text, size_t cap) {
    const uint64_t seq = get(&of(c, a)->calls) + 1;
    char call[CALL_TEXT];
    called k;
    if (get(&of(c, b)->calls) < seq) return 0;
    snprintf(text, cap, "%s (call %llu)",
             get_call(of(c, b), seq, &k) ? call_text(&k, call) : "in a collective",
             (unsigned long long)seq);
    return 1;
}

int symm_call_log_ahead(const symm_comm *c, int p, char *text, size_t cap) {
    if (!symm_comm_sees(c, p)) return 0;
    if (get(&of(c, c->rank)->captured) || get(&of(c, p)->captured)) return 0;
    return next_text(c, c->rank, p, text, cap);
}

int symm_call_log_captured(const symm_comm *c) {
    return get(&of(c, c->rank)->captured) != 0;
}

int symm_call_log_level(const symm_comm *c, int p) {
    const symm_call_log *own = of(c, c->rank), *other = of(c, p);
    if (get(&other->calls) < get(&own->calls)) return 0;
    return !get(&own->captured) && !get(&other->captured);
}

static int astray_text(const symm_comm *c, int a, int b, char *text, size_t cap) {
    char call[CALL_TEXT + 32], stage[SYMM_CALL_LOG_TEXT];
    if (!get_step(of(c, a), get(&of(c, a)->step), stage) || !next_text(c, a, b, call, sizeof call))
        return 0;
    SYMM_SAY(text, cap, SYMM_CALL_LOG_DIFFERENT ": rank %d: %s; rank %d: %s", a, stage, b, call);
    return 1;
}

symmResult_t symm_call_log_look(symm_comm *c) {
    char text[SYMM_ERR_TEXT];
    int peer = -1;
    if (!c->ctl) return symmSuccess;
    const uint64_t step = c->ctl->call_log.step;
    if (step_differs(c, step, text, sizeof text)) return SYMM_ERR(symmMismatch, "%s", text);
    for (int p = 0; p < c->nranks && peer < 0; p++)
        if (is_astray(c, c->rank, p)) peer = p;
    if (peer < 0) {
        c->exchange.astray_ns = 0;
        return symmSuccess;
    }
    const uint64_t now = symm_now_ns();
    if (!c->exchange.astray_ns) c->exchange.astray_ns = now;
    if (now - c->exchange.astray_ns < SYMM_ASTRAY_NS ||
        !astray_text(c, c->rank, peer, text, sizeof text))
        return symmSuccess;
    return SYMM_ERR(symmMismatch, "%s", text);
}

int symm_call_log_late(const symm_comm *c) {
    for (int r = 0; c->ctl && r < c->nranks; r++)
        if (symm_comm_sees(c, r) && get(&of(c, r)->step) < c->ctl->call_log.step) return r;
    return -1;
}

int symm_call_log_differ(const symm_comm *c, char *text, size_t cap) {
    uint64_t last = 0;
    if (!__atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE))
        return 0; /* pairs with comm_make.c's release */
    for (int r = 0; r < c->nranks; r++) {
        const uint64_t n = get(&of(c, r)->calls);
        if (n > last) last = n;
    }
    const uint64_t first = last > SYMM_CALL_LOG_CALLS ? last - SYMM_CALL_LOG_CALLS + 1 : 1;
    for (uint64_t seq = first; seq <= last; seq++)
        if (call_differs(c, seq, seq == first, text, cap)) return 1;
    for (int r = 0; r < c->nranks; r++) {
        const uint64_t step = get(&of(c, r)->step);
        if (step != get(&of(c, r)->ended) && step_differs(c, step, text, cap)) return 1;
    }
    for (int a = 0; a < c->nranks; a++)
        for (int b = 0; b < c->nranks; b++)
            if (is_astray(c, a, b) && astray_text(c, a, b, text, cap)) return 1;
    return 0;
}

const char *symm_call_log_text(const symm_comm *c, int rank, char *text, size_t cap) {
    const symm_call_log *d = of(c, rank);
    char call[CALL_TEXT], stage[SYMM_CALL_LOG_TEXT];
    const uint64_t calls = get(&d->calls), step = get(&d->step);
    called k;
    const int known = get_call(d, calls, &k), inside = step != get(&d->ended);
    if (!symm_comm_sees(c, rank)) {
        snprintf(text, cap, "calls that its own host alone knows");
        return text;
    }
    snprintf(text, cap, "%llu collectives%s%s%s%s", (unsigned long long)calls,
             known ? ", the last " : "", known ? call_text(&k, call) : "", inside ? "; " : "",
             inside && get_step(d, step, stage) ? stage : "");
    return text;
}

const char *symm_call_log_fewer(const symm_comm *c, int rank, char *text, size_t cap) {
    unsigned char in[SYMM_MAX_RANKS] = {0};
    const uint64_t calls = get(&of(c, rank)->calls);
    int many = 0;
    *text = 0;
    for (int p = 0; p < c->nranks; p++) {
        if (!symm_comm_sees(c, p) || get(&of(c, p)->captured)) return text;
        in[p] = p != rank && get(&of(c, p)->calls) < calls;
        many += in[p];
    }
    return many ? symm_boot_ranks(in, c->nranks, text, cap) : text;
}

/* In set-up, rank waits for those that have not begun its step. Where ranks go ahead, for whom it
 * says. Else, in a collective, for those that have finished fewer, and for those that have finished
 * as many and not issued this one. */
static int is_awaited(const symm_comm *c, int rank, int p, const uint32_t *epochs) {
    const symm_call_log *d = of(c, rank), *x = of(c, p);
    if (!symm_comm_sees(c, rank) || !symm_comm_sees(c, p)) return 0;
    if (get(&d->step) != get(&d->ended)) return get(&x->step) < get(&d->step);
    const int told = c->cuda ? 0
                             : (int)__atomic_load_n(&symm_comm_ctl(c, rank)->ahead.awaits,
                                                    __ATOMIC_RELAXED); /* for people */
    if (told) return p == told - 1;
    if (get(&d->captured) || get(&x->captured)) return 0;
    const int32_t ahead = (int32_t)(epochs[rank] - epochs[p]);
    if ((int32_t)((uint32_t)get(&d->calls) - epochs[rank]) <= 0) return 0; /* in none */
    return ahead > 0 || (!ahead && (int32_t)((uint32_t)get(&x->calls) - epochs[rank]) <= 0);
}

const char *symm_call_log_awaits(const symm_comm *c, int rank, const uint32_t *epochs, char *text,
                                 size_t cap) {
    unsigned char in[SYMM_MAX_RANKS];
    char who[160];
    int many = 0;
    for (int p = 0; p < c->nranks; p++) {
        in[p] = p != rank && is_awaited(c, rank, p, epochs);
        many += in[p];
    }
    snprintf(text, cap, "%s%s", many ? "; waiting for " : "",
             many ? symm_boot_ranks(in, c->nranks, who, sizeof who) : "");
    return text;
}

/* ---- sends and receives ---------------------------------------------------------------------- */

const char *symm_message_text(int sends, uint64_t count, uint64_t type, int peer, char *text,
                              size_t cap) {
    snprintf(text, cap, "%s of %llu %s %s rank %d", sends ? "symmSend" : "symmRecv",
             (unsigned long long)count, symm_type_name(type), sends ? "to" : "from", peer);
    return text;
}

const char *symm_signal_text(uint64_t count, int signal, int peer, uint64_t came, char *text,
                             size_t cap) {
    snprintf(text, cap, "symmWaitSignal for %llu of signal %d from rank %d, of which %llu came",
             (unsigned long long)count, signal, peer, (unsigned long long)came);
    return text;
}

void symm_signal_alone(int rank, char *text, size_t cap) {
    SYMM_SAY(text, cap, "rank %d waits for a signal of its own that no earlier call has raised",
             rank);
}

const char *symm_message_awaited(const symm_comm *c, int rank, char *text, size_t cap) {
    const symm_p2p_note *note = &symm_comm_ctl(c, rank)->p2p;
    char call[CALL_TEXT];
    /* Relaxed: it is being written, and is for people. */
    const uint64_t word = __atomic_load_n(&note->waits, __ATOMIC_RELAXED),
                   n = __atomic_load_n(&note->waits_count, __ATOMIC_RELAXED),
                   type = __atomic_load_n(&note->waits_type, __ATOMIC_RELAXED);
    const int peer = (int)(uint32_t)word - 1;
    text[0] = 0;
    if (!word) return text;
    if (word >> 32 == SYMM_P2P_SIGNAL)
        symm_signal_text(n, (int)(type & 255), peer, type >> 8, call, sizeof call);
    else
        symm_message_text(word >> 32 == SYMM_P2P_SEND, n, type, peer, call, sizeof call);
    snprintf(text, cap, "; waits in %s", call);
    return text;
}

void symm_message_alone(int rank, char *text, size_t cap) {
    SYMM_SAY(text, cap, "a message of rank %d to itself has no other call that could end it", rank);
}

int symm_message_differs(const symm_comm *c, char *text, size_t cap) {
    if (!__atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE)) return 0; /* pairs with comm_make.c */
    for (int r = 0; r < c->nranks; r++) {
        const symm_p2p_note *note = &symm_comm_ctl(c, r)->p2p;
        const uint64_t who = get(&note->differ); /* pairs with `differs`, receive_differs */
        if (!who) continue;
        SYMM_SAY(text, cap, "rank %u sends %llu %s, rank %u receives %llu %s",
                 (unsigned)(who >> 32), (unsigned long long)get(&note->sent_count),
                 symm_type_name(get(&note->sent_type)), (unsigned)who - 1,
                 (unsigned long long)get(&note->recv_count), symm_type_name(get(&note->recv_type)));
        return 1;
    }
    return 0;
}

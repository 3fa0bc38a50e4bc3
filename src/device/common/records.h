/* records.h - the plain records that host and device code share. Fixed layout, sizes asserted.
 *
 * Control block: one per rank, library-owned, at offset 0 of the rank's part of the flat range, so
 * every rank reaches every other's at base + r*stride. "Owner" below is the rank in whose block a
 * word lies.
 *
 * Two words carry all of a kernel's signalling, both 64 bit: (epoch << 32 | number). Epochs grow by
 * one per collective of the communicator; comparisons are made on the difference, so they wrap. */
#ifndef SYMM_RECORDS_H_
#define SYMM_RECORDS_H_

#include <stdint.h>

#define SYMM_MAX_RANKS 72
#define SYMM_MAX_CTAS  64
#define SYMM_STAGED \
    (~0ull) /* in place of an offset: this buffer is not mapped by peers, use scratch */
#define SYMM_PACKED (~1ull) /* instead of an offset: the part came with the word, as a packet */
/* In place of an offset, with an address of the buffer's owner in the low bits: this buffer is
 * mapped by nobody else, and peers read it through the kernel. An offset, modulo 2^64, has the two
 * highest bits alike. */
#define SYMM_PRIVATE   (1ull << 62)
#define SYMM_CTL_MAGIC 0x4c544353u

enum { SYMM_STATE_NONE = 0, SYMM_STATE_ALIVE = 1, SYMM_STATE_LEFT = 2 };

/* Two cache lines per (CTA of the owner, source rank): written by the source, read by the owner.
 * ready: {epoch, chunks of the source that may be used}; released after src_off, dst_off and staged
 * bytes were written. sig, scalar: CTA 0 only, indexed by epoch & 1: what the source believes this
 * collective to be. way: the same, stored ahead of sig, by rank 0 alone: which way the next calls
 * go (staging.c). A source can be at most one epoch ahead of the owner, so two places suffice.
 * arrive: {epoch, chunks that the source has finished}; released after the source's last access to
 * the owner's chunk. It has a line of its own so that the source can take that line while the
 * owner still reads the other. cast: {epoch, how far the source has come in asking all ranks
 * whether they go over the multicast range} (multicast_calls.c). */
typedef struct {
    uint64_t ready, src_off, dst_off;
    uint32_t way[2];
    uint64_t sig[2], scalar[2];
    uint64_t arrive, cast, pad1[6];
} symm_inbox;

/* Where a rank's part of a buffer lies, in bytes. */
typedef struct {
    uint64_t at, bytes;
} symm_extent;

/* GPUs: the second argument of kernels whose calls have a count per rank, by value, so that graphs
 * have their own: [nranks] parts for each rank, then [nranks] from each. */
typedef struct {
    symm_extent part[2 * SYMM_MAX_RANKS];
} symm_extents;

/* A line per (parity of the epoch, source rank), for calls whose parts differ in size: bytes that
 * the source has for the owner, those that it expects from the owner, and where its part lies: a
 * flat offset, SYMM_STAGED or SYMM_PACKED. flag: {epoch, signature}, released after the others. */
typedef struct {
    uint64_t flag, gives, takes, where, pad[4];
} symm_pair;

/* Two ranks that disagree on what one sends the other, as the owner saw it; for messages. who: 0
 * nobody, else bytes of an element << 32 | sender << 16 | receiver + 1. Written by the owner's
 * kernel before it leaves. */
typedef struct {
    uint64_t who, gives, takes, pad[5];
} symm_unequal;

/* What a rank called last and is doing now, for messages about ranks that differ (call_log.h).
 * Written by the owner's host side, read by peers; an entry's seq is cleared before it changes
 * and stored, released, at its end. Whole cache lines: what follows lies in lines too. */
#define SYMM_CALL_LOG_CALLS 128
#define SYMM_CALL_LOG_STEPS 4
#define SYMM_CALL_LOG_TEXT  56
typedef struct { /* seq: refused << 48 | number; what: root << 48 | collective << 32 |
                  type << 16 | reduction */
    uint64_t seq, count, what;
} symm_call_logged;
typedef struct {
    uint64_t seq, text[SYMM_CALL_LOG_TEXT / 8]; /* text: the set-up that it belongs to */
} symm_call_step;
typedef struct {
    uint64_t calls, captured, refused; /* collectives issued; captured; taken back */
    uint64_t step, ended, pad[3];      /* steps of set-up begun and ended */
    symm_call_step steps[SYMM_CALL_LOG_STEPS];
    symm_call_logged ring[SYMM_CALL_LOG_CALLS];
} symm_call_log;

/* Point-to-point, host backend (src/device/host/p2p.h). Messages of an ordered pair of ranks are
 * numbered from 1, for ever. What the sender writes lies in the receiver's block (symm_p2p_in),
 * what the receiver writes in the sender's (symm_p2p_out). */
#define SYMM_P2P_SLOTS 64 /* messages of a pair that may be on their way */
#define SYMM_P2P_BIGS  8  /* of them, those that are moved in chunks */
#define SYMM_P2P_TINY  40 /* bytes that travel in the head itself */

typedef struct { /* a message; seq: its number, released when all else is there */
    uint64_t seq, count, type;
    union {
        char tiny[SYMM_P2P_TINY];
        uint64_t at;      /* small: where in the ring it begins */
        uint64_t src_off; /* big: flat offset of the sender's buffer, _STAGED, _PRIVATE */
    };
} symm_p2p_head;

/* A big message. claim: {chunks claimed from the back << 32 | from the front}, by both. put: chunks
 * from the front that are in the ring or in the destination, of them `ringed` in the ring, where
 * the first one is at `at`; released by the sender. */
typedef struct {
    uint64_t claim, pad0[7];
    uint64_t put, ringed, at, pad1[5];
} symm_p2p_big;

typedef struct {                     /* from one source to the owner */
    uint64_t received, bigs, pad[6]; /* owner only: messages received, big ones begun */
    symm_p2p_head head[SYMM_P2P_SLOTS];
    symm_p2p_big big[SYMM_P2P_BIGS];
} symm_p2p_in;

/* From the owner to one destination. taken: messages that the destination has received; taken_at:
 * up to where it has read the ring. want: the message that it waits for, released after its count,
 * its type and where it goes: a flat offset or SYMM_STAGED. The rest is the owner's alone. */
typedef struct {
    uint64_t taken, taken_at, pad0[6];
    uint64_t want, want_count, want_type, want_off, pad1[4];
    uint64_t sent, at, seen, seen_at; /* at: ring bytes sent; seen: of taken, taken_at */
    uint64_t bigs, pad2;              /* big messages begun */
    uint64_t skip_from, skip_to;      /* what was left empty last, of the ring */
    uint64_t big_seq[SYMM_P2P_BIGS];  /* the message that has had each of their records last */
} symm_p2p_out;

/* For people, written by the owner's kernels. waits: {what it waits in: SYMM_P2P_* << 32 | peer +
 * 1}, 0 in none; in SIGNAL waits_count is how many signals are waited for, waits_type {how many
 * have come << 8 | their number}.
 * differ: {sender << 32 | receiver + 1} of a message whose receive has another count or type,
 * released after what both are. */
enum { SYMM_P2P_SEND = 1, SYMM_P2P_RECV = 2, SYMM_P2P_SIGNAL = 3 };
typedef struct {
    uint64_t waits, waits_count, waits_type;
    uint64_t differ, sent_count, sent_type, recv_count, recv_type;
} symm_p2p_note;

/* One-sided calls: how often one source has raised each of its signals at the owner, from 0, for
 * ever. Written by the source, released after what it has put before. On GPUs in their memory. */
#define SYMM_SIGNAL_WORDS 64
typedef struct {
    uint64_t raised[SYMM_SIGNAL_WORDS];
} symm_signals;

/* Small messages of ranks that do not wait for their takers, host backend
 * (src/device/host/ahead.c). Those that a rank gives are numbered from 1, for ever, and lie in its
 * own memory. */
#define SYMM_AHEAD_SLOTS 64 /* messages that a giver may be ahead of a taker */
#define SYMM_AHEAD_TINY  48 /* bytes that travel in the head itself */
#define SYMM_AHEAD_ALL   (-1)
/* Messages of up to SHORT bytes lie in the first NEAR bytes of a ring, which stay in the caches. */
#define SYMM_AHEAD_SHORT (32u << 10)
#define SYMM_AHEAD_NEAR  (256u << 10)

/* A message. flag: {its number, what the giver has called so far}, released behind the rest. */
typedef struct {
    uint64_t flag, scalar;
    char tiny[SYMM_AHEAD_TINY];
} symm_ahead_head;

typedef struct {
    /* Owner only. said: 0, or such calls since the last collective in which every rank has heard
     * from every rank, hashed; it is part of the next one's signature. calls: all, for messages.
     * awaits: 1 + the rank that it waits for, 0 none; for people. seen: all messages up to this one
     * are known to have been taken. */
    uint32_t said, calls, awaits, pad0;
    uint64_t seen, pad[5];
    /* Owner only. Of each giver, itself too: the last message that has come up in this rank's
     * calls, and where the next one may begin. Of its own messages: where they begin and for whom
     * they are, a rank or SYMM_AHEAD_ALL. */
    struct {
        uint64_t number, at;
    } from[SYMM_MAX_RANKS];
    struct {
        uint64_t at;
        int64_t taker;
    } given[SYMM_AHEAD_SLOTS];
    symm_ahead_head head[SYMM_AHEAD_SLOTS]; /* written by the owner, read by takers */
    /* By each taker: the owner's last message that it has taken; the one that it waits for, once it
     * has waited for a while. */
    struct {
        uint64_t number, wants, pad[6];
    } taken[SYMM_MAX_RANKS];
} symm_ahead;

/* Host backend: how peers come to write into the owner's buffers that are in no window
 * (src/device/host/direct.c). page: its address in the owner's process (machine/peer_memory.h), 0
 * none; closed: set when the owner leaves with an error, for good. busy: by each peer, not 0 while
 * it writes. */
typedef struct {
    uint64_t closed, page, pad[6], busy[SYMM_MAX_RANKS];
} symm_gate;

/* Of calls that may go through staging or through the kernel. By kind, which is a collective and a
 * range of sizes, bit k of a word: not as was found when the communicator was made. Owner only
 * (staging.c). */
enum { SYMM_WAY_UNSAID, SYMM_WAY_STAGING, SYMM_WAY_KERNEL };
enum { SYMM_WAY_SIZES = 6, SYMM_WAY_KINDS = 5 * SYMM_WAY_SIZES };
typedef struct {
    uint32_t now;  /* the way of the last such call; UNSAID: there was none */
    uint32_t made; /* pages of places that calls walk through */
    /* Rank 0: what has been found faster; of which kinds the other way is tried; what it has said,
     * by parity of the epoch. */
    uint32_t kept, tried, said[2];
    uint32_t pad[10]; /* to a line, so that what follows lies in whole ones */
} symm_way;
/* Rank 0, of a kind: the least time of calls whose bit is 0, and 1; calls until the next step;
 * calls between two tries. */
typedef struct {
    uint32_t least[2], left, run;
} symm_way_kind;

typedef struct {
    uint32_t magic, state; /* state: written by the owner, read by peers */
    uint64_t
        /* {symmResult_t << 32 | rank + 1}; 0 go on. Set by the owner's host side and by leaving
         * peers */
        abort;
    uint64_t left; /* {epoch << 32 | SYMM_STAGE_*} of the owner's kernel that set abort; on the host
                      backend of the program's only */
    uint64_t
        issued; /* collectives that the owner has issued; for messages about ranks that differ */
    uint64_t
        stream; /* GPUs, thread ranks that share one: the stream of the owner's last eager call */
    uint64_t driver; /* thread ranks: the thread that called this one last (driver.h) */
    /* As abort: a peer that has died or aborted while that was no error yet. Written by the owner's
     * watcher, by the peer that aborts, and by kernels that leave for it; whoever waits for a peer,
     * or comes to use the communicator, ends with it. */
    uint64_t death;
    uint64_t pid; /* of the owner's process, as its peers know it; host backend */
    symm_call_log call_log;
    symm_p2p_note p2p;
    symm_unequal unequal;
    uint64_t astray; /* GPUs, owner only: not 0 once copies have been for nothing (copies.h) */
    uint64_t pad[7]; /* to a line */
    uint32_t epoch[SYMM_MAX_CTAS]; /* owner only: the last epoch that CTA b has finished */
    symm_way way;
    symm_ahead ahead;
    symm_pair pair[2][SYMM_MAX_RANKS];
    symm_inbox inbox[SYMM_MAX_CTAS][SYMM_MAX_RANKS];
    symm_p2p_out p2p_out[SYMM_MAX_RANKS];
    symm_p2p_in p2p_in[SYMM_MAX_RANKS];
    symm_signals signals[SYMM_MAX_RANKS]; /* by source */
    symm_gate gate;
    symm_way_kind ways[SYMM_WAY_KINDS]; /* host backend */
} symm_ctl;

#define SYMM_CTL_BYTES (1u << 20) /* room for symm_ctl; scratch begins here */

/* GPUs: the words that kernels poll lie in device memory, in this record at the place of symm_ctl;
 * a symm_ctl in host memory that all processes and GPUs of the domain see holds state and abort.
 * All but arrive and posted are indexed by epoch & 1. scalar, src_off, dst_off: {low, epoch, high,
 * epoch}, so that they need no order. arrive: {epoch} of the source's CTA, released after its
 * stores; posted: {epoch, pieces that it has staged here}, likewise. */
#define SYMM_GPU_MAX_CTAS 320
#define SYMM_GPU_ASK_CTAS 256 /* that a program may ask for */
/* Threads of a CTA that move data, at most; one warp more is for signatures. What lines of eight
 * ranks, and staging of four and eight, take in registers leaves room for fewer; lines of four that
 * cross once, with 80 registers, for more. */
#define SYMM_GPU_THREADS      480
#define SYMM_GPU_THREADS_FEW  352
#define SYMM_GPU_THREADS_FOUR 736
/* Lines that a warp of two ranks moves together: items have no more, but of rooted calls. */
#define SYMM_GPU_LINES_AT_ONCE 4
/* Those and the last warp fill a multiprocessor's registers. Threads that move data in a CTA of
 * which four fit beside each other, whatever they are of: */
#define SYMM_GPU_QUARTER(threads) (((threads) + 32) / 4 - 32)
/* Those that move packets between two ranks, with 72 registers each; and in a quarter. */
#define SYMM_GPU_THREADS_PAIR 416
#define SYMM_GPU_QUARTER_PAIR (((SYMM_GPU_THREADS_PAIR) + 32) / 2 - 32)
/* Pieces of a CTA that may be in staging at once, from each rank: cuda/staged.cuh. */
#define SYMM_GPU_STAGE_PLACES 4
/* Point-to-point (cuda/p2p.cuh). Units in the ring of an ordered pair are numbered from 0, for
 * ever; a message has the number of its first unit, and one. What the sender writes lies with the
 * receiver, what the receiver writes with the sender. */
typedef struct {               /* a call; its channel's calls lie one after the other */
    uint64_t buff, off, count; /* off: flat offset of buff, or SYMM_STAGED */
    uint8_t type, esize_log, peer;
    uint8_t sends, last; /* last: of its channel, which ends with it */
    uint8_t pad[3];
} symm_gpu_p2p_op;
/* Where a side stands in the ring: its next unit, written by its kernel of this number. Of two the
 * newer one holds. */
typedef struct {
    uint64_t unit, kernel;
} symm_gpu_p2p_at;
#define SYMM_GPU_P2P_SEGMENTS 4 /* of a ring; of each all units are given back together */
typedef struct {                /* from one source to the owner */
    symm_gpu_p2p_at at[2];      /* owner only */
    uint64_t taken[SYMM_GPU_P2P_SEGMENTS]; /* owner only: units of each, ever */
    uint64_t stored, pad1[7];              /* the last message that met, ended by its sender */
} symm_gpu_p2p_in;
/* From the owner to one destination. want: of a receive of a message that meets, count and type,
 * and where it goes, a flat offset or SYMM_STAGED; each with the message's number. */
typedef struct {
    uint64_t credit[SYMM_GPU_P2P_SEGMENTS]; /* of `taken`, where a segment is all taken */
    uint64_t taken, pad0[3];                /* the last message that the destination has loaded */
    struct {
        uint64_t word, no;
    } want[2];
    uint64_t pad1[4];
    symm_gpu_p2p_at at[2]; /* owner only */
    uint64_t pad2[4];
} symm_gpu_p2p_out;
#define SYMM_GPU_P2P_THREADS 512  /* of a CTA, at most */
#define SYMM_GPU_P2P_INLINE  104  /* calls that the arguments hold */
#define SYMM_GPU_P2P_LIST    4096 /* calls of a kernel, at most */
#define SYMM_GPU_CHANNELS    (2 * SYMM_MAX_RANKS)
typedef struct {
    uint64_t kernels; /* that have ended */
    uint64_t ctas;    /* of the kernel that runs. 0 between kernels, as all that follows */
    uint64_t self[2]; /* of the messages to itself: receives, sends, have ended */
    uint64_t pad[4];
    struct { /* of a channel's warps: how often they have ended something; their number at the end
              */
        uint64_t done, ended;
    } team[SYMM_GPU_CHANNELS];
    symm_gpu_p2p_op list[SYMM_GPU_P2P_LIST]; /* calls that do not fit the arguments */
} symm_gpu_p2p;

/* One-sided calls (cuda/onesided.cuh), the owner's alone: of one peer's signals, how often this
 * rank has raised each at it, and how many of those that came from it have been used up. */
typedef struct {
    uint64_t raised[SYMM_SIGNAL_WORDS], used[SYMM_SIGNAL_WORDS];
} symm_gpu_tally;
typedef struct {
    uint64_t ctas, pad[7]; /* of the kernel that runs: whose copies have ended; 0 between kernels */
    symm_gpu_tally tally[SYMM_MAX_RANKS];
} symm_gpu_onesided;

typedef struct {
    uint64_t sig[2];
    uint32_t scalar[2][4], src_off[2][4], dst_off[2][4];
    uint64_t pad[2];
} symm_gpu_inbox;

/* Of unequal parts, by parity of the epoch and source: bytes that the source has for the owner, and
 * those that it expects; where these go: a flat offset in the source's memory, or SYMM_STAGED;
 * whether any part comes to the source through its staging. Each {low, epoch, high, epoch}. */
typedef struct {
    uint32_t gives[4], takes[4], where[4], stages[4];
} symm_gpu_pair;

typedef struct {
    uint32_t epoch[SYMM_GPU_MAX_CTAS];
    uint32_t done
        /* owner only: serial of the last call, given eagerly, that CTA b has ended */
        [SYMM_GPU_MAX_CTAS];
    uint32_t over; /* owner only: 1 once a kernel has left early; those behind it leave at once */
    uint32_t told; /* owner only: 1 once a kernel of its own has told all peers that it leaves */
    uint32_t
        copied; /* owner only: the epoch whose data copy engines move; written before they do */
    uint32_t pad[13];
    /* Ranks of several hosts: stands for the first line of the owner's symm_ctl where its peers'
     * kernels write abort and death. They cannot reach memory of another host. */
    uint64_t far[8];
    symm_gpu_inbox inbox[SYMM_MAX_RANKS];
    symm_gpu_pair pair[2][SYMM_MAX_RANKS];
    uint64_t arrive[SYMM_GPU_MAX_CTAS][SYMM_MAX_RANKS];
    uint64_t posted[SYMM_GPU_MAX_CTAS][SYMM_MAX_RANKS];
    symm_gpu_p2p p2p;
    symm_gpu_p2p_out p2p_out[SYMM_MAX_RANKS];
    symm_gpu_p2p_in p2p_in[SYMM_MAX_RANKS];
    symm_gpu_onesided onesided;
    symm_signals signals[SYMM_MAX_RANKS]; /* by source */
} symm_gpu_ctl;

/* Scratch, behind the control block. Packets: per parity of the epoch, phase and source one slot of
 * fixed-place packets, so that a flag never lies where data once lay. Staging: per parity and CTA,
 * two chunks in and two chunks out; GPUs: per source, place, CTA and warp a few rows of 512
 * bytes. Point-to-point: per source a ring. Messages of a rank that goes ahead: a ring. */
#define SYMM_PACKET_LOG    12
#define SYMM_PACKET_BYTES  (1u << SYMM_PACKET_LOG)
#define SYMM_PACKET_STRIDE (SYMM_PACKET_BYTES + 64u)

typedef union { /* offsets from the control block */
    struct {
        uint64_t packet_off, packet_slot; /* slot: bytes of one (parity, phase, source) */
        uint64_t stage_off, stage_bytes;  /* bytes: of one parity */
        uint64_t p2p_off, p2p_ring;       /* ring: bytes of one source's, a power of two */
        uint64_t ahead_off, ahead_ring;   /* ring: a power of two */
    } host;
    struct {
        uint64_t ll_off, ll_slot;        /* LL packets; slot: bytes of one (parity, source) */
        uint64_t line_off, line_slot;    /* lines; slot: bytes of one (parity, phase, source) */
        uint64_t stage_off, stage_bytes; /* bytes: all of it */
        /* As host's: what ends without its receiver. There is SYMM_P2P_GPU_BYTES for it. */
        uint64_t p2p_off, p2p_ring;
    } gpu;
} symm_scratch;

/* Everything a kernel is told. By value at launch; the same record is replayed by graphs, so it
 * holds no epoch. */
typedef struct {
    uint64_t base, stride; /* rank r's flat part begins at base + r*stride */
    const void *src;       /* this rank's own pointers */
    void *dst;
    uint64_t count; /* elements (all_gather: per rank) */
    int32_t rank, nranks;
    symm_scratch scratch;
    uint32_t op, esize; /* esize: bytes of an element */
    uint32_t sig;       /* collective, count, type, reduction and root, hashed */
    uint32_t type;
    uint64_t src_off, dst_off; /* flat offsets of src and dst, SYMM_STAGED or SYMM_PRIVATE */
    uint64_t scalar;           /* premulsum: bits of this rank's scalar. COPIES: see copies.h */
    const void *scalar_ptr;    /* or where to read it at run time; NULL: use scalar */
    int32_t nctas;
    uint32_t flags;      /* SYMM_ARG_* */
    uint64_t timeout_ns; /* of one wait for a living peer; 0: none */
    /* Of a call with a count per rank: [nranks] for each rank, then [nranks] from each, which live
     * as long as the call; else NULL. In memory of the host: on GPUs the launch copies them
     * (symm_extents). */
    const symm_extent *extents;
    union {
        struct {
            uint64_t chunk;                /* bytes, 1 << chunk_log */
            uint32_t chunk_log, esize_log; /* esize: 1 << esize_log */
            uint32_t spin;                 /* polls before the slow path of a wait */
            int32_t root;                  /* of a call that has one */
            uint32_t pairs;                /* of unequal parts: bytes of one that is a packet */
            uint64_t multicast;            /* as gpu's, of emulated addresses */
        } host;
        struct {
            uint64_t host_base, host_stride;  /* rank r's symm_ctl: base + r*stride, host memory */
            uint64_t lines;                   /* of a warp and item */
            uint32_t line_warps;              /* of a CTA: those that move lines */
            uint32_t stage_ctas, stage_warps; /* CTAs that have staging, and warps of each */
            uint32_t stage_rows;              /* rows of 512 bytes of a warp and piece */
            uint32_t serial;    /* of an eager call, by which the host sees its end; 0: captured */
            int32_t root;       /* of a call that has one */
            uint32_t pairs;     /* of unequal parts: bytes of one that goes in LL packets */
            uint64_t multicast; /* all ranks' byte of flat offset 0; 0: there is no such range */
        } gpu;
    };
} symm_args;

/* What the kernel of sends and receives is told. Channel i begins with call first[i]; `listed`
 * calls lie in the control block, else they are here. The same record of a few calls more puts
 * calls there, from first[0] on. */
typedef struct {
    symm_args a;
    uint32_t channels, listed;
    uint16_t ops;       /* calls here */
    uint8_t self, pad0; /* 1 | 2: receives from, sends to the own rank */
    uint32_t pad1;
    uint16_t first[SYMM_GPU_CHANNELS];
    symm_gpu_p2p_op op[SYMM_GPU_P2P_INLINE];
} symm_gpu_p2p_args;

/* What one-sided calls are made of. COPY: a put or a get. */
enum {
    SYMM_ONESIDED_COPY,
    SYMM_ONESIDED_SIGNAL,
    SYMM_ONESIDED_WAIT,
    SYMM_ONESIDED_RESET,
    SYMM_ONESIDED_FENCE
};
/* What their kernel is told: a copy (of no bytes: none), then the rest in their order. No count of
 * signals that were raised or used up is in it, so a replay raises and uses up its own. */
#define SYMM_GPU_ONESIDED_OPS SYMM_MAX_RANKS
typedef struct {
    uint64_t count; /* wait: for how many */
    uint8_t kind, peer, signal, pad[5];
} symm_gpu_onesided_op;
typedef struct {
    symm_args a;
    uint64_t to, from, bytes;
    uint32_t ops, pad;
    symm_gpu_onesided_op op[SYMM_GPU_ONESIDED_OPS];
} symm_gpu_onesided_args;

/* Partial results of domains, which become one: the own one at dst, the others' in the order of
 * domains from `others` on, each `step` bytes behind the one before. divides: by this at last, or
 * 0. Where domain is `domains` none is at dst: contributions of ranks. scalars: their factors, or
 * 0. */
typedef struct {
    uint64_t dst, others, scalars, step, count; /* count: elements */
    int32_t domains, domain, op, divides;
} symm_gpu_join;

/* APART: ranks share a GPU, or communicators that were cut to fit side by side. There no successor
 * may wait in place: it could keep a peer's kernel out. NT: stores past the caches pay at this
 * size. DIRECT: buffers in no window are read through the kernel, not staged; WRITES: and written.
 * EITHER: or staged, as rank 0 says (staging.c); NEAR: staged if it has said nothing yet. CROWDED:
 * there are more ranks than cores. CAST_SRC, CAST_DST: that buffer is bound in the multicast range.
 * HOSTS: the ranks are on several hosts, each of which has pages of its own (symm_gpu_ctl.far).
 * COPIES: before the kernel copy engines have moved the data, if `copied` says so. */
enum {
    SYMM_ARG_APART = 1,
    SYMM_ARG_NT = 2,
    SYMM_ARG_DIRECT = 4,
    SYMM_ARG_CROWDED = 8,
    SYMM_ARG_CAST_SRC = 16,
    SYMM_ARG_CAST_DST = 32,
    SYMM_ARG_EITHER = 64,
    SYMM_ARG_NEAR = 128,
    SYMM_ARG_HOSTS = 256,
    SYMM_ARG_WRITES = 512,
    SYMM_ARG_COPIES = 1024
};

/* What a kernel leaves behind when it could not finish. */
typedef struct {
    uint32_t code; /* symmResult_t */
    int32_t rank;  /* who was missing or differed, -1 unknown */
    uint32_t epoch, stage;
    uint64_t at;  /* SYMM_STAGE_DIRECT: the address in rank's process that could not be reached, */
    int32_t err;  /* the errno, */
    int32_t mine; /* and 1: it is not rank's memory but the own that could not be */
} symm_outcome;

enum {
    SYMM_STAGE_ENTER,
    SYMM_STAGE_READY,
    SYMM_STAGE_PACKET,
    SYMM_STAGE_ARRIVE,
    SYMM_STAGE_SIGNATURE,
    SYMM_STAGE_SCALAR,
    SYMM_STAGE_POST,
    SYMM_STAGE_COUNTS,
    SYMM_STAGE_P2P,
    SYMM_STAGE_DIRECT,
    SYMM_STAGE_SIGNAL,
    SYMM_STAGE_DEVICE
};

#ifdef __cplusplus
#define SYMM_STATIC_ASSERT static_assert
#else
#define SYMM_STATIC_ASSERT _Static_assert
#endif
SYMM_STATIC_ASSERT(sizeof(symm_way) == 64, "what follows keeps its lines");
SYMM_STATIC_ASSERT(sizeof(symm_inbox) == 128, "two cache lines per source");
SYMM_STATIC_ASSERT(sizeof(symm_ctl) <= SYMM_CTL_BYTES, "the control block fits before scratch");
SYMM_STATIC_ASSERT(sizeof(symm_pair) == 64 && sizeof(symm_unequal) == 64, "one line each");
SYMM_STATIC_ASSERT(SYMM_CALL_LOG_CALLS > SYMM_AHEAD_SLOTS + 1, "who is ahead has its calls");
SYMM_STATIC_ASSERT(sizeof(symm_ahead_head) == 64 && sizeof(symm_ahead) % 64 == 0, "whole lines");
SYMM_STATIC_ASSERT(sizeof(symm_gate) % 64 == 0, "whole lines");
SYMM_STATIC_ASSERT(sizeof(symm_p2p_head) == 64, "a tiny message is one line");
SYMM_STATIC_ASSERT(sizeof(symm_p2p_in) % 64 == 0 && sizeof(symm_p2p_out) == 256 &&
                       sizeof(symm_p2p_note) == 64,
                   "whole lines");
SYMM_STATIC_ASSERT(sizeof(symm_call_log) % 64 == 0, "inboxes lie in lines of their own");
SYMM_STATIC_ASSERT(sizeof(symm_signals) % 64 == 0, "each source writes lines of its own");
SYMM_STATIC_ASSERT(sizeof(symm_gpu_pair) == 64, "a line");
SYMM_STATIC_ASSERT(sizeof(symm_gpu_inbox) == 128, "a scalar lies at a multiple of 16 bytes");
SYMM_STATIC_ASSERT(sizeof(symm_gpu_ctl) <= SYMM_CTL_BYTES, "the control block fits before scratch");
SYMM_STATIC_ASSERT(sizeof(symm_args) <= 256, "kernel arguments stay small");
SYMM_STATIC_ASSERT(sizeof(symm_gpu_p2p_args) <= 4096, "what drivers before CUDA 12.1 take");
SYMM_STATIC_ASSERT(sizeof(symm_gpu_p2p_op) == 32 && sizeof(symm_gpu_p2p_out) == 192 &&
                       sizeof(symm_gpu_p2p_in) == 128,
                   "whole lines, or halves");
SYMM_STATIC_ASSERT(sizeof(symm_gpu_onesided_args) <= 4096 && sizeof(symm_gpu_onesided_op) == 16 &&
                       sizeof(symm_gpu_tally) % 64 == 0,
                   "what drivers before CUDA 12.1 take; whole lines");

#endif

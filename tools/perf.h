/* perf.h - symm-perf: what its files share. Every rank runs the same code on data of its own
 * (struct perf_rank), in a process under mpirun or in a thread with --threads; the only things they
 * share are behind perf_world. No lock outside perf_world.c. */
#ifndef PERF_H_
#define PERF_H_

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "device/common/colls.h"
#include "symm.h"

enum { PERF_SUM, PERF_PROD, PERF_MAX, PERF_MIN, PERF_AVG, PERF_MULSUM, PERF_OPS };

enum { PERF_VS_NONE, PERF_VS_MPI, PERF_VS_NCCL };

enum { PERF_EXIT_WRONG = 1, PERF_EXIT_USAGE = 2, PERF_EXIT_TIMEOUT = 3 };

/* ---- patterns of sends and receives, and of puts (perf_pattern.c) ---- */

typedef struct perf_rank perf_rank;
typedef struct perf_case perf_case;
enum { PERF_SENDRECV, PERF_HYPERCUBE, PERF_PINGPONG, PERF_ALLTOALL_SENDS, PERF_PUT, PERF_PATTERNS };
typedef struct {
    symm_coll_row row; /* what comes of it, as if it were a collective */
    int legs;          /* messages that follow each other in a call; their time is one's */
    int doubles, pair; /* 1: the ranks must be a power of 2; must be two */
    int puts;          /* 1: it needs windows */
    int steps;         /* 1: one takes what the one before brought: not together in a group */
    void (*call)(perf_rank *p, const perf_case *c);
    int (*origin)(int rank, int nranks, int part); /* whose data comes into a part */
} perf_pattern;
extern const perf_pattern perf_patterns[PERF_PATTERNS];

/* ---- arguments (perf_args.c) ---- */

typedef struct {
    const symm_coll_row *row; /* of the collective, or of the pattern */
    symmColl_t coll;          /* symmNumColls: a pattern */
    int pattern;              /* PERF_*; -1: a collective */
    uint64_t min_bytes, max_bytes, step_bytes;
    int step_factor; /* > 1: multiplies; else step_bytes is added */
    int iters;       /* 0: as many as fill a round of 2 ms */
    int warmup, check, cycles, agg;
    int type, op; /* -1: all */
    int root;     /* -1: all, one after the other */
    int graph, registered, unalign, blocking, stream;
    int average; /* over ranks: 0 rank 0, 1 average, 2 minimum, 3 maximum; -1 not given */
    int timeout_s;
    int threads; /* thread ranks; 0: MPI's */
    int gpus;    /* -g: GPUs per process; 0: not given */
    int vs;      /* PERF_VS_* */
    int limits, per_rank, rounds;
    int corrupt; /* spoils one element before each check */
    int help;
    const char *json, *plot;
    const char *nccl; /* file name of NCCL's library; NULL: where it usually is */
    int argc;         /* as given, for the JSON */
    char **argv;
} perf_config;

/* What the collective is, by its row of coll.def; what the pattern is, by its own. */
static inline int perf_moves(const perf_config *cfg) {
    return symm_coll_moves(cfg->row);
}
static inline int perf_reduces(const perf_config *cfg) {
    return (cfg->row->flags & SYMM_COLL_REDUCES) != 0;
}
/* One of a rank's buffers has a part for each rank. */
static inline int perf_parts(const perf_config *cfg) {
    return symm_coll_parts(cfg->row, 2) > 1;
}
/* Parts in what a rank sends, and in what it receives. */
static inline uint64_t perf_sent(const perf_config *cfg, int nranks) {
    return symm_holds_parts(cfg->row->in, nranks);
}
static inline uint64_t perf_received(const perf_config *cfg, int nranks) {
    return symm_holds_parts(cfg->row->out, nranks);
}

/* NULL: a collective. */
static inline const perf_pattern *perf_pattern_of(const perf_config *cfg) {
    return cfg->pattern < 0 ? NULL : &perf_patterns[cfg->pattern];
}

static inline int perf_has_root(const perf_config *cfg) {
    return (cfg->row->flags & SYMM_COLL_ROOT) != 0;
}
/* Measurements of a size: out of place, and in place where that is done with other work. */
static inline int perf_cells(const perf_config *cfg) {
    return perf_moves(cfg) && !cfg->row->apart && !cfg->row->swaps ? 2 : 1;
}

/* Pure. Fills *cfg; on a bad flag or value returns -1 with a line for the user in err. */
int perf_args_parse(int argc, char **argv, perf_config *cfg, char *err, size_t cap);
/* What can only be checked once the number of ranks is known; mpi: whether they are processes.
 * Pure.
 */
int perf_args_check(const perf_config *cfg, int nranks, int mpi, char *err, size_t cap);
/* What can only be checked once the library has chosen its backend. Pure. */
int perf_args_backend(const perf_config *cfg, int nranks, int cuda, char *err, size_t cap);
/* What does not run over several domains. Streams of the host backend do there, but this tool
 * initialises MPI for one thread. Pure. */
int perf_args_domains(const perf_config *cfg, int domains, int cuda, char *err, size_t cap);
void perf_args_usage(FILE *f);

extern const char *const perf_type_names[symmNumTypes]; /* nccl-tests' names */
extern const char *const perf_op_names[PERF_OPS];
size_t perf_type_size(int type);

/* ---- the ranks' meeting place (perf_world.c, perf_mpi.c) ---- */

typedef struct perf_rival perf_rival;
typedef struct perf_world perf_world;
struct perf_world {
    int rank, nranks;
    const char *how; /* "mpi" or "threads" */
    int device;      /* that this rank drives; -1: none. Set before comm_create */
    void *ctx;
    void (*barrier)(perf_world *w);
    /* recv holds nranks blocks of `bytes`. */
    void (*allgather)(perf_world *w, const void *send, void *recv, size_t bytes);
    symmResult_t (*comm_create)(perf_world *w, symmComm_t *comm);
    void (*abort)(perf_world *w, int code) __attribute__((noreturn));
    const perf_rival *mpi; /* NULL where MPI does not run */
};

/* Runs body(world, arg) in n threads of this process, one per rank; returns the largest of what
 * they return. */
int perf_world_threads(int n, int (*body)(perf_world *w, void *arg), void *arg);
/* A tool's run. speaks: it has only a help text or a complaint, which rank 0 says. rank: what one
 * rank does, in MPI's processes. all: runs all ranks, as threads of this process. Both return the
 * exit code. */
typedef struct {
    int threads; /* asked for; 0: none */
    int gpus;    /* per process; 0: not given */
    int speaks;
    int (*rank)(perf_world *w, void *arg);
    int (*all)(void *arg);
    void *arg;
} perf_job;
extern const char *perf_tool; /* its name, in messages */
/* While there is one thread. The exit code (perf_launch.c). */
int perf_launch(const perf_job *job, int *argc, char ***argv);
/* If any rank has something to say in err: rank 0 prints the first of them, and all return 1. */
int perf_world_refuses(perf_world *w, const char *err);
enum { PERF_ERR = 320 }; /* bytes of such a text */
double perf_world_max(perf_world *w, double v);
int64_t perf_world_sum(perf_world *w, int64_t v);

#ifdef SYMM_HAVE_MPI
void perf_mpi_open(int *argc, char ***argv, perf_world *w);
void perf_mpi_close(void);
#endif

/* ---- data (perf_data.c): what is sent, and what must come back, bit for bit ---- */

/* One pattern period of a type and reduction: every element is perf_pattern[i % period]. */
typedef struct {
    int type, op, nranks;
    uint64_t round; /* other data for every round */
    char *bytes;    /* scratch for one period, owned by the caller; PERF_PERIOD_BYTES */
} perf_data;
enum { PERF_PERIOD = 8191, PERF_PERIOD_BYTES = PERF_PERIOD * 8 };

/* What rank sends: count elements at buf (any alignment). */
void perf_data_fill(const perf_data *d, int rank, void *buf, uint64_t count);
/* How many of count elements at buf differ from the reduction of what all ranks sent, from element
 * `from` on, as `calls` calls in place, one after the other, must leave it there. */
uint64_t perf_data_check_reduced(const perf_data *d, const void *buf, uint64_t from, uint64_t count,
                                 int calls);
/* The same against what `rank` sent. */
uint64_t perf_data_check_copied(const perf_data *d, int rank, const void *buf, uint64_t from,
                                uint64_t count);
/* How many calls in a row perf_data_check_reduced can predict for in-place use (at least 1, at most
 * `most`). */
int perf_data_calls(const perf_data *d, int most);
/* Rank's factor for mulsum, in the element type's bits. */
uint64_t perf_data_scalar(int type, int rank);

/* ---- one rank's run (perf_run.c) ---- */

typedef struct {
    double time_us;                  /* per call */
    double alg_bw, bus_bw;           /* GB/s */
    int64_t wrong;                   /* -1: not checked */
    double rival_us, limit_us;       /* 0: not measured */
    int64_t rival_wrong;             /* as wrong, of the rival's result */
    double issue_us, rival_issue_us; /* the host's share of a call; 0: not measured */
} perf_cell;

typedef struct {
    uint64_t bytes, count;
    int type, op, root; /* type, op -1: none */
    perf_cell cell[2];  /* out of place, in place */
} perf_row;

typedef struct {
    perf_row *row;
    size_t n, cap;
    double exchange_us;         /* bare two-cache-line exchange, smallest seen; 0: not measured */
    int64_t wrong, rival_wrong; /* of all cells; rival_wrong -1: none was checked */
} perf_results;

typedef struct perf_limits perf_limits;
typedef struct perf_gpu perf_gpu;
typedef struct perf_nccl perf_nccl;
struct perf_rank {
    const perf_config *cfg;
    perf_world *world;
    int core; /* to which its thread is bound; -1: to none */
    symmComm_t comm;
    symmStream_t stream;     /* NULL: calls run inline */
    perf_gpu *gpu;           /* NULL on the host backend */
    const perf_rival *rival; /* NULL unless --vs */
    perf_nccl *nccl;         /* NULL unless --vs nccl */
    char *send, *recv;       /* allocations; send_bytes and recv_bytes long */
    size_t send_bytes, recv_bytes;
    symmWindow_t send_win, recv_win; /* NULL where not registered */
    int root;                        /* of the row that is measured; 0 where there is none */
    perf_limits *limits;             /* NULL unless --limits */
    perf_data data;
    perf_results results;
};

/* ---- what a rank measures with (perf_open.c) ---- */

/* Communicator and stream of p->cfg, in p->world. Returns 1, and rank 0 has said why, if this
 * cannot be run; nothing is open then. */
int perf_open(perf_rank *p);
void perf_close(perf_rank *p);
/* Buffers for the largest size of p->cfg, and their windows. */
void perf_open_buffers(perf_rank *p);
void perf_close_buffers(perf_rank *p);
/* Elements that each rank passes. all_gather: the size is the total, as in nccl-tests, and blocks
 * are whole 16-byte units. */
uint64_t perf_elements(const perf_config *cfg, int nranks, uint64_t bytes, int type);
/* Where the case lies in the buffers. In place the smaller buffer is this rank's part of the larger
 * one. */
void perf_lay_case(const perf_rank *p, perf_case *c, int in_place);

/* The whole benchmark of one rank; returns the exit code. */
int perf_run(perf_world *w, const perf_config *cfg);
/* Ends all ranks with a message if r is an error. */
void perf_must(perf_rank *p, symmResult_t r, const char *what);
#define PERF_MUST(p, call) perf_must((p), (call), #call)
/* Median. Sorts v. */
double perf_median(double *v, int n);

/* One case: a size, type, reduction and placement. (perf_time.c) */
struct perf_case {
    uint64_t count; /* elements each rank passes */
    uint64_t bytes; /* of which the table speaks */
    int type, op, in_place;
    symmRedOp_t redop;
    char *send, *recv;           /* as passed to the call */
    const struct perf_counts *v; /* NULL: one count for all ranks */
};

/* ---- parts of buffers (perf_parts.c) ---- */

enum { PERF_SENT, PERF_RECEIVED, PERF_SIDES };
typedef struct perf_counts { /* by side and rank; _int as MPI wants them */
    size_t count[PERF_SIDES][SYMM_MAX_RANKS];
    int count_int[PERF_SIDES][SYMM_MAX_RANKS], displ_int[PERF_SIDES][SYMM_MAX_RANKS];
} perf_counts;
/* All in elements. Those of this rank's part for q, or from q; those of its buffer; and where the
 * part for or from q begins in a buffer of `rank`. */
uint64_t perf_part(const perf_rank *p, uint64_t count, int side, int q);
uint64_t perf_total(const perf_rank *p, uint64_t count, int side);
uint64_t perf_offset(const perf_rank *p, uint64_t count, int rank, int side, int q);
/* The caller's to free; NULL where the collective has one count for all ranks. */
perf_counts *perf_counts_of(perf_rank *p, uint64_t count);

/* Whom --vs names. */
struct perf_rival {
    const char *name; /* of at most 8 letters, as the table shows it */
    const char *key;  /* as the JSON does */
    int on_stream; /* 1: calls go to the rank's stream, grouped (-m) and captured (-G) like ours */
    /* 1 if it has this collective for this type and reduction. */
    int (*offers)(const perf_rank *p, const perf_case *c);
    void (*call)(perf_rank *p, const perf_case *c);
    void (*group)(perf_rank *p, int end); /* NULL: has no groups */
    /* The case with the buffers that its calls get: they hold what ours do, before and after.
     * NULL: they do not, and its results are not checked. */
    perf_case (*places)(const perf_rank *p, const perf_case *c);
};

/* ---- the buffers, seen from the host (perf_mem.c) ---- */

/* What this rank sends, into c->send. */
void perf_mem_fill(perf_rank *p, const perf_case *c);
void perf_mem_poison(perf_rank *p, void *at, uint64_t bytes);
/* As perf_data_check_reduced and perf_data_check_copied. */
uint64_t perf_mem_check_reduced(perf_rank *p, const char *at, uint64_t from, uint64_t count,
                                int calls);
uint64_t perf_mem_check_copied(perf_rank *p, int rank, const char *at, uint64_t from,
                               uint64_t count);
/* Flips one bit. */
void perf_mem_spoil(perf_rank *p, char *at);

/* ---- streams and graphs of either backend (perf_stream.c) ---- */

typedef struct perf_graph perf_graph;
void perf_stream_open(perf_rank *p);
void perf_stream_close(perf_rank *p);
void perf_stream_finish(perf_rank *p); /* waits for what was given to it */
typedef void (*perf_call_fn)(perf_rank *p, const perf_case *c);
/* A graph of n calls. All ranks together. */
perf_graph *perf_graph_of(perf_rank *p, const perf_case *c, perf_call_fn call, int n);
void perf_graph_free(perf_rank *p, perf_graph *g);
/* n launches; returns how long they took, in us. */
double perf_graph_play(perf_rank *p, perf_graph *g, int n);
double perf_now_us(void);

void perf_call(perf_rank *p, const perf_case *c);
/* Measures all contestants of a case, interleaved, and fills times. before_last: called before the
 * last timed loop of ours. */
void perf_time(perf_rank *p, const perf_case *c, perf_cell *cell,
               void (*before_last)(perf_rank *p, const perf_case *c));

/* ---- bare loops over the same mapping (perf_limits.c); host backend only ---- */

enum { PERF_LIMIT_EXCHANGE, PERF_LIMIT_LOOP, PERF_LIMIT_LOOP_STREAM, PERF_LIMITS };
void perf_limits_open(perf_rank *p);
void perf_limits_close(perf_rank *p);
/* k times what the collective cannot do without. */
void perf_limits_loop(perf_rank *p, const perf_case *c, int which, int k);

/* ---- output (perf_table.c, perf_json.c, perf_plot.c): rank 0 ---- */

typedef struct {
    char host[64];
    int pid;
    int core;   /* to which it is bound; -1: to none */
    int device; /* -1 on the host backend; the rest is empty there */
    char pci[16], gpu[64];
} perf_place;

/* Binds a thread rank of the host backend to a core of its own, before the first row. The core, or
 * -1: not bound (perf_cores.c). */
int perf_cores_take(const perf_rank *p);
void perf_table_head(const perf_rank *p, const perf_place *places);
void perf_table_row(const perf_rank *p, const perf_row *row);
void perf_table_foot(const perf_rank *p);
/* Both return 0, or -1 with errno set. */
int perf_json_write(const char *path, const perf_rank *p, const perf_place *places);
int perf_plot_write(const char *path, const perf_rank *p);

#endif

/* gpu_pointer.c - host memory that CUDA was told nothing of, as a buffer of a collective. In a
 * process of its own: a kernel that faults takes the context with it. */
#include "gpu_kit.h"

typedef struct {
    enum { NOTHING, REFUSED, WORKED, WRONG, FAULTED, UNSEEN } outcome;
    int cu;
    char text[200];
} host_case;

/* In a process of its own, which ends here: a kernel that faults takes the context with it. */
static void host_pointer_rank(int rank, int n, void *arg) {
    enum { LEN = 1 << 20 };
    host_case *h = arg;
    symmComm_t comm;
    const char *why;
    int device = 0;
    (void)rank, (void)n;
    gk_find(&why);
    T_OK(symmCommInitAll(&comm, 1, &device));
    T_OK(symmSetDevice(0));
    cu_stream stream = gk_new_stream();
    int *p = malloc(LEN * sizeof *p);
    for (int i = 0; i < LEN; i++) p[i] = i;
    symmResult_t r = symmAllReduce(p, p, LEN, symmInt32, symmSum, comm, gk_stream(stream));
    h->outcome = REFUSED;
    snprintf(h->text, sizeof h->text, "%s", r ? symmGetLastError(comm) : "");
    if (r) _exit(r == symmInvalidArgument ? 0 : 1);
    h->cu = gk_wait_code(NULL, stream);
    if (!h->cu) {
        h->outcome = WORKED;
        for (int i = 0; i < LEN; i++)
            if (p[i] != i) h->outcome = WRONG;
        _exit(0);
    }
    r = symmBarrier(comm, gk_stream(stream));
    snprintf(h->text, sizeof h->text, "%s", r ? symmGetLastError(comm) : "");
    h->outcome = r ? FAULTED : UNSEEN;
    _exit(0);
}

/* Memory of the host that CUDA was told nothing of: refused, or used rightly (where GPUs reach all
 * memory), or a fault that the next call reports. Never a wrong result, a hang, or silence. */
static void a_host_pointer(void) {
    static const char *const texts[] = {"nothing came",
                                        "refused",
                                        "works",
                                        "is WRONG",
                                        "faults, and the next call says so",
                                        "faults, and the next call says nothing"};
    gk_begin_forked();
    T_EXPECT_WARNINGS();
    host_case *h = T_SHARED(sizeof *h);
    T_FORK_DIES(1, 0, host_pointer_rank, h);
    gk_figure("malloc'ed memory as a buffer: %s (CUDA code %d) %s", texts[h->outcome], h->cu,
              h->text);
    T_CHECKF(h->outcome == REFUSED || h->outcome == WORKED || h->outcome == FAULTED,
             "%s (CUDA code %d)", texts[h->outcome], h->cu);
}

T_MAIN(T(a_host_pointer))

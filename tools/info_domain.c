/* info_domain.c - what symm-info says about domains: which ranks share this one, whether
 * SYMM_DOMAIN_SIZE cuts it, and what would carry messages to others. Main thread; opens NCCL, if
 * there is one and GPUs for it. */
#include <inttypes.h>
#include <stdio.h>

#include "base/param.h"
#include "host/life/where.h"
#include "transport/net/nccl.h"
#include "info.h"
#include "symm.h"

static void show_nccl(const char *named) {
    const symm_nccl *nccl;
    int version = 0;
    if (!*named && !info_sms())
        info_row("NCCL", "not looked for: there are no GPUs");
    else if (symm_nccl_find(named, &nccl) ||
             symm_nccl_error(nccl, nccl->ncclGetVersion(&version), "ncclGetVersion"))
        info_row("NCCL", "refused: %s", symmGetLastError(NULL));
    else
        info_row("NCCL", "version %d, in %s", version, symm_nccl_path());
}

void info_domain(void) {
    symm_where here;
    symm_params p;
    if (symm_where_fill(&here))
        info_row("extent", "refused: %s", symmGetLastError(NULL));
    else
        info_row("extent", "ranks of boot %016" PRIx64 "%016" PRIx64 ", network namespace %" PRIu64,
                 here.host.hi, here.host.lo, here.netns);
    if (symm_param_load(&p)) { /* the parameters' part says why */
        info_row("cut", "refused: a variable is wrong");
        return;
    }
    if (p.domain_size)
        info_row("cut", "SYMM_DOMAIN_SIZE=%lld: into domains of so many ranks",
                 (long long)p.domain_size);
    info_row("other domains", "by symmCommInitMPI: MPI on the host backend, NCCL on GPUs");
    show_nccl(p.nccl_lib);
}

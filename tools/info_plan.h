/* info_plan.h - plans as symm-info shows and draws them. One thread, no lock. */
#ifndef INFO_PLAN_H_
#define INFO_PLAN_H_

#include "host/coll/plan.h"

enum { INFO_PLAN_ROWS = 256 };

typedef struct {
    const char *coll;
    uint64_t from, to; /* bytes of a rank's input; to UINT64_MAX: any */
    symm_kernel_id kernel;
    int source; /* SYMM_PLAN_ */
} info_plan_row;

typedef struct { /* of a number of ranks */
    char title[80];
    int n;
    info_plan_row row[INFO_PLAN_ROWS];
} info_plan;

/* n plans as SVG, one below the other: a bar for each collective, bytes from left to right, a
 * colour for each kernel. 0, or -1 with errno set (info_plan_svg.c). */
int info_plan_draw(int fd, const info_plan *plan, int n);

#endif

/* dev_comm.h - device communicators inside the library. The communicator's user thread. */
#ifndef SYMM_DEV_COMM_H_
#define SYMM_DEV_COMM_H_

#include "symm_device.h"
#include "host/comm/types.h"

/* Pure: where everything lies in a rank's resource memory, for d->nranks; returns how long it is.
 * Epochs come first, then what peers write. */
uint64_t symm_dev_comm_lay_out(const symmDevRequirements_t *q, symmDevComm_t *d);
/* The same of the host backend: a line for each word, as each has another writer. */
uint64_t symm_dev_comm_lay_out_host(const symmDevRequirements_t *q, symmDevComm_t *d);

/* Before the communicator's memory is freed: if device communicators are left, waits for all that
 * its GPU's context runs. */
void symm_dev_comm_drain(symm_comm *c);

#endif

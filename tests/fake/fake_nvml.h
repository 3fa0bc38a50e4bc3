/* fake_nvml.h - an NVML that knows the fake CUDA driver's devices, and in which fabric of several
 * hosts each of them is. fake_cuda_install installs one whose GPUs are in none, so that the
 * machine's own is never asked: what follows comes after it.
 *
 *     fake_nvml_set(0, 7, 2);     device 0 is in cluster 7, clique 2
 *
 * Of one process: each forked rank may set its own. Any thread; one lock. */
#ifndef FAKE_NVML_H_
#define FAKE_NVML_H_

#include "fake_cuda.h"

typedef struct {
    /* The last byte of the cluster's id, the others are 0. 0: the switches are of one host. */
    unsigned char cluster[FAKE_DEVICES];
    unsigned clique[FAKE_DEVICES];
    unsigned char state;  /* of each GPU's registration with the fabric, 3: completed */
    int status;           /* of the same, 0 */
    int missing;          /* 1: there is no NVML */
    const char *lacks[2]; /* entry points that it has not got */
    const char *fails;    /* one that returns `code` and does nothing */
    int code;
} fake_nvml_config;

fake_nvml_config fake_nvml_defaults(void);
/* Uses `config` (NULL: the defaults), and replaces libnvidia-ml. */
void fake_nvml_install(const fake_nvml_config *config);
/* One device's place, from now on. */
void fake_nvml_set(int device, int cluster_byte, unsigned clique);
/* Calls of an entry point since the install. A name that is none ends the test. */
int fake_nvml_calls(const char *call);

#endif

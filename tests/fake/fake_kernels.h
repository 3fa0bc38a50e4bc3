/* fake_kernels.h - this library's GPU kernels as functions of the fake CUDA driver, so that
 * programs for GPUs run without one. All rows have one simple body. This tests the host side of the
 * library and the programs, never the kernels. */
#ifndef FAKE_KERNELS_H_
#define FAKE_KERNELS_H_

/* Replaces libcuda by the fake driver, with `devices` devices and streams that have threads.
 * fabric: whether memory may go as fabric handles. */
void fake_kernels_install(int devices, int fabric);

#endif

/* fake_kernels.h - this library's GPU kernels as functions of the fake CUDA driver, so that
 * programs for GPUs run without one. One simple body for every row: what is tested so is the
 * library's host side and the programs, never the kernels. */
#ifndef FAKE_KERNELS_H_
#define FAKE_KERNELS_H_

/* The fake driver with `devices` devices and streams that have threads, in the place of libcuda. */
void fake_kernels_install(int devices);

#endif

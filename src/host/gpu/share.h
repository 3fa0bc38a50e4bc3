/* share.h - of each GPU, whether a communicator of this process has two CTAs on each multiprocessor
 * of it (symm_plan_budget). Any thread; no lock. */
#ifndef SYMM_SHARE_H_
#define SYMM_SHARE_H_

/* 1: none had, and the caller has now. device: as the driver numbers it. */
int symm_share_take(int device);
/* By who has. */
void symm_share_give(int device);

#endif

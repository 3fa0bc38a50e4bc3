/* fd_closer.h - closes descriptors in a thread of its own. The last close of a descriptor that a
 * GPU's driver has exported takes half a millisecond, and longer if several processes close theirs;
 * the caller does not wait for it. The thread lives while there is something to close. Any thread.
 * Lock: closer_lock. */
#ifndef SYMM_CLOSER_H_
#define SYMM_CLOSER_H_

/* Takes the descriptors, which the caller has counted (SYMM_STAT fds). If there is no memory or no
 * thread, or if many wait already, it closes them before it returns. */
void symm_closer_take(const int *fds, int n);
/* Returns when all descriptors that were taken before are closed. */
void symm_closer_wait(void);

#endif

/* fd_closer.h - closes descriptors in a thread of its own: the last close of one that a GPU's
 * driver has exported takes half a millisecond, longer where several processes close theirs, and
 * whoever is done with it need not wait. The thread lives while there is something to close. Any
 * thread. Lock: closer_lock. */
#ifndef SYMM_CLOSER_H_
#define SYMM_CLOSER_H_

/* Takes the descriptors, which the caller has counted (SYMM_STAT fds). Closes them itself where
 * there is no memory or no thread to be had, or where many are waiting already. */
void symm_closer_take(const int *fds, int n);
/* Until all that was taken before is closed. */
void symm_closer_wait(void);

#endif

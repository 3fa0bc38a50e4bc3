/* lifeline.h - the descriptors whose end shows peers that this process has ended. A forked child
 * inherits copies, which would hide that end while the child lives. So a handler of fork() replaces
 * them in the child. Any thread; one lock. */
#ifndef SYMM_LIFELINE_H_
#define SYMM_LIFELINE_H_

/* A descriptor is made and added between these two, so that no fork comes in between. Nothing else
 * is done there. */
void symm_lifeline_lock(void);
void symm_lifeline_unlock(void);
/* Under the lock. fd < 0 is ignored. */
void symm_lifeline_add(int fd);
/* Takes the lock. Closes any descriptor, added or not. */
void symm_lifeline_close(int fd);

#endif

/* lifeline.h - the descriptors by whose end peers see that this process has ended. A child that is
 * forked gets copies of them, and would hide that end for as long as it lives: fork() takes them
 * from it. Any thread; one lock. */
#ifndef SYMM_LIFELINE_H_
#define SYMM_LIFELINE_H_

/* A descriptor is made and added between these two, so that no fork falls in between. Nothing else
 * is done there. */
void symm_lifeline_lock(void);
void symm_lifeline_unlock(void);
/* With the lock. fd < 0, which is none, is passed over. */
void symm_lifeline_add(int fd);
/* Takes the lock. Closes any descriptor, added or not. */
void symm_lifeline_close(int fd);

#endif

/* boot_net.h - bootstrap over a mover that nothing else uses yet: for communicators that are made
 * from another one. The thread inside. */
#ifndef SYMM_BOOT_NET_H_
#define SYMM_BOOT_NET_H_

#include "transport/boot/boot.h"
#include "net.h"

/* rank: this one's among the mover's nranks. The mover lives longer. After a failure it is
 * cancelled, and the others are told. */
symmResult_t symm_boot_net_open(symm_net *net, int rank, int nranks, symm_boot **out);

/* The same by hand: r, whose text is the thread's last error, is why this rank cannot meet them. */
void symm_boot_net_give_up(symm_net *net, symmResult_t r);

#endif

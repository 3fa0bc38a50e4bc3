/* tcp_socket.h - what all that use TCP share: which address a listener gets, an address as bytes
 * and as text, how soon the end of a host shows. Any thread; no lock. */
#ifndef SYMM_TCP_SOCKET_H_
#define SYMM_TCP_SOCKET_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "symm.h"

#define SYMM_TCP_ADDRESS 26 /* bytes of an address: family, port, address, scope */

/* A listener at the address of an interface, with a port that the kernel chose; *addr: where.
 * ifname: a list as SYMM_SOCKET_IFNAME has it; NULL: any interface, or loopback where there is no
 * network. what: whose it is, for texts. kept: forked children keep it; otherwise it is in the set
 * of lifeline.h. The gauge fds counts it. */
symmResult_t symm_tcp_listen(const char *ifname, const char *what, int kept,
                             struct sockaddr_storage *addr, int *listener);

/* The first byte is 4 or 6. */
void symm_tcp_address_put(const struct sockaddr_storage *addr, uint8_t *out);
/* NULL, or what is wrong with the bytes. */
const char *symm_tcp_address_get(const uint8_t *in, struct sockaddr_storage *addr, socklen_t *len);
/* "10.0.0.1:4711"; returns buf. */
const char *symm_tcp_address_text(const struct sockaddr_storage *addr, char *buf, size_t cap);

/* "10.0.0.2 (eth0)": an address of this host, and whose it is; returns buf. */
const char *symm_tcp_interface_text(const struct sockaddr_storage *addr, char *buf, size_t cap);

/* No delay of small messages, and probes that find a host which is gone: first after idle_s of
 * silence, then every interval_s, `count` times. Best effort: without them messages are slower, or
 * a cut cable is noticed at a deadline only. */
void symm_tcp_options(int fd, int idle_s, int interval_s, int count);

#endif

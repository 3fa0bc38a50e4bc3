/* boot_tcp_id.c - unique ids: which address the root listens at, and the 128 bytes that say so; the
 * same for other listeners (tcp_socket.h). Any thread; no lock of its own. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/stats.h"
#include "boot_tcp.h"
#include "lifeline.h"
#include "tcp_socket.h"

/* Layout of an id, little-endian. All other bytes are zero. */
enum {
    ID_MAGIC = 0,     /* u32 */
    ID_VERSION = 4,   /* u16 */
    ID_ADDRESS = 6,   /* 26 bytes */
    ID_SECRET = 32,   /* 16 bytes */
    ID_PID = 48,      /* u32 */
    ID_AGREED = 52,   /* u8: 1: every rank made it, secret and pid are 0 */
    ID_END = 53,      /* zeros from here */
    ID_CHECKSUM = 124 /* u32 over the bytes before it */
};
#define ID_MAGIC_VALUE 0x64497973u /* "syId" */

/* Layout of an address, little-endian. */
enum {
    AT_FAMILY = 0,  /* u8: 4 or 6 */
    AT_PORT = 2,    /* u16 */
    AT_ADDRESS = 6, /* 4 or 16 bytes, network order */
    AT_SCOPE = 22   /* u32: interface of a link-local address */
};
_Static_assert(AT_SCOPE + 4 == SYMM_TCP_ADDRESS && ID_ADDRESS + SYMM_TCP_ADDRESS == ID_SECRET,
               "the fields fill it");

static void put16(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *p, uint32_t v) {
    put16(p, v);
    put16(p + 2, v >> 16);
}

static uint32_t get16(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}
static uint32_t get32(const uint8_t *p) {
    return get16(p) | get16(p + 2) << 16;
}

/* FNV-1a. Finds ids that are cut off or overwritten. It does not stop an attacker; the secret does.
 * */
static uint32_t checksum(const uint8_t *p, size_t n) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 16777619u;
    return h;
}

symmResult_t symm_tcp_random(void *out, size_t bytes) {
    for (size_t got = 0; got < bytes;) {
        ssize_t k =
            SYMM_FAIL_CALL(boot_random, -1, EIO, getrandom((char *)out + got, bytes - got, 0));
        if (k < 0 && errno != EINTR)
            return SYMM_ERR(symmSystemError, "getrandom failed: %s", strerror(errno));
        if (k > 0) got += (size_t)k;
    }
    return symmSuccess;
}

/* ---- which address ---- */

static socklen_t address_length(int family) {
    return family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static in_port_t *port_of(struct sockaddr_storage *addr) {
    return addr->ss_family == AF_INET ? &((struct sockaddr_in *)addr)->sin_port
                                      : &((struct sockaddr_in6 *)addr)->sin6_port;
}

/* Interfaces to this host's own containers and virtual machines. Each host may have one, with the
 * same address on all, so nobody on another host reaches it. */
static int is_inward(const char *name) {
    static const char *const begin[] = {"docker", "virbr", "veth", "br-", "cni", "lxc", "podman"};
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
        if (!strncmp(name, begin[i], strlen(begin[i]))) return 1;
    return 0;
}

/* How an interface's name stands to a list of SYMM_SOCKET_IFNAME: 0 it is not meant, 1 the list has
 * the beginning of its name, 2 its whole name. `^` in front of the list: all but those are meant;
 * `=`: whole names alone; "^=" both. Behind a colon NCCL's lists have a port, which no socket
 * has. */
static int is_listed(const char *list, const char *name) {
    const int others = *list == '^', whole = list[others] == '=';
    int found = 0;
    for (const char *at = list + others + whole; *at;) {
        const size_t token = strcspn(at, ","), n = strcspn(at, ",:");
        const int same = n == strlen(name);
        if (n && !strncmp(at, name, n) && (same || !whole) && found < 1 + same) found = 1 + same;
        at += token + (at[token] == ',');
    }
    return others ? !found : found;
}

/* IPv4 before IPv6, link-local last; 0: an interface that is down, or no such address. */
static int family_score(const struct ifaddrs *i) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) return 0;
    if (i->ifa_addr->sa_family == AF_INET) return 3;
    if (i->ifa_addr->sa_family != AF_INET6) return 0;
    const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)i->ifa_addr;
    return IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr) ? 1 : 2;
}

/* Preference of this address for the listener; 0: not usable. Of those that are named the exact
 * name first. Where none is named, those that lead out of the host; loopback only where a list says
 * what not to take, and leaves nothing else. */
static int address_score(const struct ifaddrs *i, const char *ifname) {
    const int score = family_score(i), loops = (i->ifa_flags & IFF_LOOPBACK) != 0;
    const int named = ifname && *ifname != '^',
              listed = ifname ? is_listed(ifname, i->ifa_name) : 1;
    if (!score || !listed) return 0;
    if (named) return score + 10 * (listed - 1);
    if (!(i->ifa_flags & IFF_RUNNING) || (loops && !ifname)) return 0;
    return score + (loops ? 0 : is_inward(i->ifa_name) ? 10 : 20);
}

/* An interface is there once for each of its addresses. */
static int is_first(const struct ifaddrs *list, const struct ifaddrs *i) {
    while (list != i && (!family_score(list) || strcmp(list->ifa_name, i->ifa_name) != 0))
        list = list->ifa_next;
    return list == i;
}

/* Names of the usable interfaces, for the error about one that is not. */
static void list_interfaces(const struct ifaddrs *list, char *buf, size_t cap) {
    buf[0] = 0;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        size_t at = strlen(buf);
        if (family_score(i) && is_first(list, i))
            snprintf(buf + at, cap - at, "%s%s", at ? ", " : "", i->ifa_name);
    }
}

/* Where the list came from (symm_param_parse). */
static const char *list_variable(void) {
    const char *own = getenv("SYMM_SOCKET_IFNAME"), *nccl = getenv("NCCL_SOCKET_IFNAME");
    const int borrowed = (!own || !*own) && nccl && *nccl;
    return borrowed ? "NCCL_SOCKET_IFNAME" : "SYMM_SOCKET_IFNAME";
}

/* *len is 0 if no name is given and there is no network. */
static symmResult_t choose_address(const char *ifname, struct sockaddr_storage *addr,
                                   socklen_t *len) {
    struct ifaddrs *list;
    if (SYMM_FAIL_CALL(id_interfaces, -1, ENOMEM, getifaddrs(&list)))
        return SYMM_ERR(symmSystemError, "listing network interfaces failed: %s", strerror(errno));
    const struct ifaddrs *best = NULL;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        if (address_score(i, ifname) > (best ? address_score(best, ifname) : 0)) best = i;
    symmResult_t status = symmSuccess;
    *len = 0;
    if (best) {
        *len = address_length(best->ifa_addr->sa_family);
        memcpy(addr, best->ifa_addr, *len);
        *port_of(addr) = 0;
        SYMM_INFO("tcp: listening on interface %s", best->ifa_name);
    } else if (ifname) {
        char names[200];
        list_interfaces(list, names, sizeof(names));
        status = SYMM_ERR(symmInvalidArgument,
                          "%s=%s names no interface that is up and has an address (there are: %s)",
                          list_variable(), ifname, names);
    }
    freeifaddrs(list);
    return status;
}

static void loopback_address(int family, struct sockaddr_storage *addr, socklen_t *len) {
    memset(addr, 0, sizeof(*addr));
    addr->ss_family = (sa_family_t)family;
    if (family == AF_INET)
        ((struct sockaddr_in *)addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        ((struct sockaddr_in6 *)addr)->sin6_addr = in6addr_loopback;
    *len = address_length(family);
}

/* ---- listener ---- */

static int listen_at(struct sockaddr_storage *addr, socklen_t len) {
    int fd = symm_fd_above(
        SYMM_FAIL_CALL(id_socket, -1, EMFILE,
                       socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    if (fd < 0) return -1;
    /* A port that was named: connections of the communicator before do not keep it. */
    const int yes = 1;
    if (*port_of(addr)) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (SYMM_FAIL_CALL(id_bind, -1, EADDRNOTAVAIL, bind(fd, (struct sockaddr *)addr, len)) ||
        SYMM_FAIL_CALL(id_listen, -1, EADDRINUSE, listen(fd, SOMAXCONN)) ||
        SYMM_FAIL_CALL(id_address, -1, ENOBUFS, getsockname(fd, (struct sockaddr *)addr, &len))) {
        int e = errno;
        close(fd);
        errno = e;
        return -1;
    }
    return fd;
}

/* An fd that listens at addr, whose port 0 becomes the one the kernel chose; -1 with errno. */
static int open_at(struct sockaddr_storage *addr, socklen_t len, int kept) {
    if (kept) return listen_at(addr, len);
    symm_lifeline_lock();
    int fd = listen_at(addr, len), e = errno;
    symm_lifeline_add(fd);
    symm_lifeline_unlock();
    errno = e;
    return fd;
}

symmResult_t symm_tcp_listen(const char *ifname, const char *what, int kept,
                             struct sockaddr_storage *addr, int *listener) {
    socklen_t len = 0;
    SYMM_TRY(choose_address(ifname, addr, &len));
    int fd = len ? open_at(addr, len, kept) : -1;
    if (fd < 0 && !ifname) { /* the ranks may all be on this host, so loopback is tried */
        loopback_address(AF_INET, addr, &len);
        fd = open_at(addr, len, kept);
        if (fd < 0 && errno != EMFILE && errno != ENFILE) {
            loopback_address(AF_INET6, addr, &len);
            fd = open_at(addr, len, kept);
        }
    }
    if (fd < 0)
        return SYMM_ERR(errno == EMFILE || errno == ENFILE ? symmFdLimit : symmSystemError,
                        "opening the listener of %s failed: %s", what, strerror(errno));
    SYMM_STAT_ADD(fds, +1);
    *listener = fd;
    return symmSuccess;
}

/* ---- an address as bytes and as text ---- */

void symm_tcp_address_put(const struct sockaddr_storage *addr, uint8_t *out) {
    memset(out, 0, SYMM_TCP_ADDRESS);
    if (addr->ss_family == AF_INET) {
        const struct sockaddr_in *a = (const struct sockaddr_in *)addr;
        out[AT_FAMILY] = 4;
        put16(out + AT_PORT, ntohs(a->sin_port));
        memcpy(out + AT_ADDRESS, &a->sin_addr, 4);
    } else {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)addr;
        out[AT_FAMILY] = 6;
        put16(out + AT_PORT, ntohs(a->sin6_port));
        memcpy(out + AT_ADDRESS, &a->sin6_addr, 16);
        put32(out + AT_SCOPE, a->sin6_scope_id);
    }
}

const char *symm_tcp_address_get(const uint8_t *in, struct sockaddr_storage *addr, socklen_t *len) {
    if (in[AT_FAMILY] != 4 && in[AT_FAMILY] != 6) return "unknown address family";
    if (get16(in + AT_PORT) == 0) return "port 0";
    memset(addr, 0, sizeof(*addr));
    addr->ss_family = in[AT_FAMILY] == 4 ? AF_INET : AF_INET6;
    *len = address_length(addr->ss_family);
    if (addr->ss_family == AF_INET) {
        struct sockaddr_in *a = (struct sockaddr_in *)addr;
        a->sin_port = htons((uint16_t)get16(in + AT_PORT));
        memcpy(&a->sin_addr, in + AT_ADDRESS, 4);
    } else {
        struct sockaddr_in6 *a = (struct sockaddr_in6 *)addr;
        a->sin6_port = htons((uint16_t)get16(in + AT_PORT));
        memcpy(&a->sin6_addr, in + AT_ADDRESS, 16);
        a->sin6_scope_id = get32(in + AT_SCOPE);
    }
    return NULL;
}

/* The bytes of the address alone, in network order; their number. */
static size_t host_bytes(const struct sockaddr *addr, const void **at) {
    const int v4 = addr->sa_family == AF_INET;
    *at = v4 ? (const void *)&((const struct sockaddr_in *)(const void *)addr)->sin_addr
             : (const void *)&((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr;
    return v4 ? sizeof(struct in_addr) : sizeof(struct in6_addr);
}

static void host_text(const struct sockaddr_storage *addr, char *buf, size_t cap) {
    const void *at;
    host_bytes((const struct sockaddr *)addr, &at);
    if (!inet_ntop(addr->ss_family, at, buf, (socklen_t)cap)) snprintf(buf, cap, "?");
}

const char *symm_tcp_address_text(const struct sockaddr_storage *addr, char *buf, size_t cap) {
    char host[INET6_ADDRSTRLEN];
    host_text(addr, host, sizeof(host));
    if (addr->ss_family == AF_INET)
        snprintf(buf, cap, "%s:%u", host, ntohs(((const struct sockaddr_in *)addr)->sin_port));
    else
        snprintf(buf, cap, "[%s]:%u", host, ntohs(((const struct sockaddr_in6 *)addr)->sin6_port));
    return buf;
}

static int same_host(const struct sockaddr *a, const struct sockaddr_storage *b) {
    const void *x, *y;
    if (!a || a->sa_family != b->ss_family) return 0;
    const size_t bytes = host_bytes(a, &x);
    host_bytes((const struct sockaddr *)b, &y);
    return !memcmp(x, y, bytes);
}

const char *symm_tcp_interface_text(const struct sockaddr_storage *addr, char *buf, size_t cap) {
    char host[INET6_ADDRSTRLEN];
    struct ifaddrs *list = NULL;
    const char *name = "no interface"; /* any more */
    host_text(addr, host, sizeof(host));
    if (getifaddrs(&list)) list = NULL;
    for (const struct ifaddrs *i = list; i; i = i->ifa_next)
        if (same_host(i->ifa_addr, addr)) name = i->ifa_name;
    snprintf(buf, cap, "%s (%s)", host, name);
    if (list) freeifaddrs(list);
    return buf;
}

/* ---- ids ---- */

/* secret NULL: every rank makes it. */
static void write_id(const struct sockaddr_storage *addr, const uint8_t *secret,
                     symmUniqueId_t *out) {
    uint8_t id[SYMM_UNIQUE_ID_BYTES] = {0};
    put32(id + ID_MAGIC, ID_MAGIC_VALUE);
    put16(id + ID_VERSION, SYMM_TCP_VERSION);
    symm_tcp_address_put(addr, id + ID_ADDRESS);
    if (secret) memcpy(id + ID_SECRET, secret, SYMM_TCP_SECRET);
    if (secret) put32(id + ID_PID, (uint32_t)getpid());
    id[ID_AGREED] = !secret;
    put32(id + ID_CHECKSUM, checksum(id, ID_CHECKSUM));
    memcpy(out->internal, id, sizeof(id));
}

symmResult_t symm_tcp_id_make(const char *ifname, symmUniqueId_t *id, int *listener) {
    uint8_t secret[SYMM_TCP_SECRET];
    struct sockaddr_storage addr;
    SYMM_TRY(symm_tcp_random(secret, sizeof(secret)));
    SYMM_TRY(symm_tcp_listen(ifname, "a unique id", 1, &addr, listener));
    write_id(&addr, secret, id);
    return symmSuccess;
}

/* The host into host; the port, or NULL: it is no such text. */
static const char *split_address(const char *text, char *host, size_t cap) {
    const int six = *text == '[';
    const char *colon = strrchr(text, ':');
    if (!colon || !colon[1] || (six && colon[-1] != ']')) return NULL;
    const size_t n = (size_t)(colon - text) - (six ? 2 : 0);
    if (!n || n >= cap) return NULL;
    memcpy(host, text + six, n);
    host[n] = 0;
    return six || !strchr(host, ':') ? colon + 1 : NULL;
}

/* The host's first address, as every rank must find it. */
symmResult_t symm_tcp_id_agree(const char *address, symmUniqueId_t *id) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found;
    struct sockaddr_storage addr;
    char host[256], *end;
    const char *port = split_address(address, host, sizeof(host));
    const long number = port ? strtol(port, &end, 10) : 0;
    if (!port || *end || number < 1 || number > 65535)
        return SYMM_ERR(symmInvalidArgument,
                        "%.200s: must be ADDRESS:PORT, [IPV6]:PORT or NAME:PORT", address);
    const int e = getaddrinfo(host, port, &hints, &found);
    if (e)
        return SYMM_ERR(symmInvalidArgument, "%.200s: there is no such host: %s", address,
                        gai_strerror(e));
    memset(&addr, 0, sizeof(addr));
    memcpy(&addr, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    write_id(&addr, NULL, id);
    return symmSuccess;
}

symmResult_t symm_tcp_id_listen(const symm_tcp_id *id, int *listener) {
    struct sockaddr_storage addr = id->addr;
    char at[64];
    *listener = open_at(&addr, id->addrlen, 0);
    if (*listener < 0)
        return SYMM_ERR(errno == EMFILE || errno == ENFILE ? symmFdLimit : symmSystemError,
                        "rank 0 cannot listen at %s: %s", symm_tcp_id_text(id, at, sizeof(at)),
                        strerror(errno));
    SYMM_STAT_ADD(fds, +1);
    return symmSuccess;
}

/* ---- reading an id ---- */

/* What is wrong with the bytes, NULL if nothing is. */
static const char *id_defect(const uint8_t *id) {
    if (get32(id + ID_MAGIC) != ID_MAGIC_VALUE) return "wrong magic number";
    if (get32(id + ID_CHECKSUM) != checksum(id, ID_CHECKSUM)) return "wrong checksum";
    return NULL;
}

/* As id_defect, for the fields whose meaning depends on the version. */
static const char *read_fields(const uint8_t *id, symm_tcp_id *out) {
    const char *defect = symm_tcp_address_get(id + ID_ADDRESS, &out->addr, &out->addrlen);
    for (int i = ID_END; i < ID_CHECKSUM && !defect; i++)
        if (id[i]) defect = "reserved bytes are set";
    return defect;
}

symmResult_t symm_tcp_id_parse(const symmUniqueId_t *id, symm_tcp_id *out) {
    uint8_t raw[SYMM_UNIQUE_ID_BYTES];
    memcpy(raw, id->internal, sizeof(raw));
    const char *defect = id_defect(raw);
    if (!defect && get16(raw + ID_VERSION) != SYMM_TCP_VERSION)
        return SYMM_ERR(symmVersionMismatch,
                        "the unique id was made by another version of the library (id version %u, "
                        "this is %u)",
                        get16(raw + ID_VERSION), SYMM_TCP_VERSION);
    if (!defect) defect = read_fields(raw, out);
    if (defect)
        return SYMM_ERR(symmInvalidArgument, "this is no id that symmGetUniqueId made: %s", defect);
    memcpy(out->secret, raw + ID_SECRET, SYMM_TCP_SECRET);
    out->pid = get32(raw + ID_PID);
    out->agreed = raw[ID_AGREED];
    return symmSuccess;
}

const char *symm_tcp_id_text(const symm_tcp_id *id, char *buf, size_t cap) {
    return symm_tcp_address_text(&id->addr, buf, cap);
}

const char *symm_tcp_id_reach(const symm_tcp_id *id) {
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)&id->addr;
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)&id->addr;
    const int loops = id->addr.ss_family == AF_INET ? ntohl(a4->sin_addr.s_addr) >> 24 == 127
                                                    : IN6_IS_ADDR_LOOPBACK(&a6->sin6_addr);
    if (!loops) return "";
    return "; that is a loopback address, which processes of the id's host and network namespace "
           "reach and no others (SYMM_SOCKET_IFNAME names another interface)";
}

/* cluster/tcp.h - TCP connections between processes of several hosts. Errors are ERR_ARG, an
 * address that is none, and ERR_IO. A socket is the caller's after success.
 * Nothing is encrypted; who may connect is for roles/join.h to say.
 * Threads: any. */
#ifndef CLUSTER_TCP_H
#define CLUSTER_TCP_H

#include <stdbool.h>

#include "base/err.h"

#define CLUSTER_TCP_HOST_BYTES 256
#define CLUSTER_TCP_PORT_BYTES 16

/* "HOST:PORT" or "[::1]:PORT". */
MUST int cluster_tcp_split(const char *text, char host[CLUSTER_TCP_HOST_BYTES],
                           char port[CLUSTER_TCP_PORT_BYTES]);
/* host NULL: every address of this one; port "0": any that is free. */
MUST int cluster_tcp_listen(const char *host, const char *port, int *out);
MUST int cluster_tcp_accept(int listener, int *out);
/* Tries for a minute. */
MUST int cluster_tcp_connect(const char *host, const char *port, int *out);
int cluster_tcp_port(int fd);
/* The address of this end or of the other one, as a number. */
MUST int cluster_tcp_host(int fd, bool other, char host[CLUSTER_TCP_HOST_BYTES]);

#endif

/* Sockets between processes of several hosts. */
#include "cluster/tcp.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_S 60 /* the other end may start later */

int cluster_tcp_split(const char *text, char host[CLUSTER_TCP_HOST_BYTES],
                      char port[CLUSTER_TCP_PORT_BYTES])
{
    const char *colon = text ? strrchr(text, ':') : NULL;
    const char *from = text;
    size_t n;

    if (!colon || colon == text || !colon[1] || strlen(colon + 1) > 5 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return err_set(ERR_ARG, "expected HOST:PORT, found \"%.60s\"", text ? text : "");
    n = (size_t)(colon - text);
    if (text[0] == '[' && colon[-1] == ']') {
        from++;
        n -= 2;
    }
    if (n >= CLUSTER_TCP_HOST_BYTES)
        return err_set(ERR_ARG, "a host name of %zu bytes", n);
    memcpy(host, from, n);
    host[n] = 0;
    snprintf(port, CLUSTER_TCP_PORT_BYTES, "%s", colon + 1);
    return OK;
}

static int resolve(const char *host, const char *port, bool passive,
                   struct addrinfo **out)
{
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM,
                                  .ai_flags = passive ? AI_PASSIVE : 0};
    int rc = getaddrinfo(host, port, &want, out);

    return rc == 0
               ? OK
               : err_set(ERR_ARG, "%s:%s: %s", host ? host : "", port, gai_strerror(rc));
}

static void no_delay(int fd)
{
    int one = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

int cluster_tcp_listen(const char *host, const char *port, int *out)
{
    struct addrinfo *a;
    int one = 1, fd;

    TRY(resolve(host, port, true, &a));
    fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (fd < 0 || bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 64) != 0) {
        (void)err_set(ERR_IO, "%s:%s: cannot listen: %m", host ? host : "", port);
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(a);
    *out = fd;
    return fd >= 0 ? OK : ERR_IO;
}

int cluster_tcp_accept(int listener, int *out)
{
    *out = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (*out < 0)
        return err_set(ERR_IO, "cannot accept a connection: %m");
    no_delay(*out);
    return OK;
}

static int try_connect(const char *host, const char *port)
{
    struct addrinfo *a;
    int fd = -1;

    if (resolve(host, port, false, &a) != OK)
        return -1;
    for (const struct addrinfo *i = a; i && fd < 0; i = i->ai_next) {
        fd = socket(i->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, i->ai_addr, i->ai_addrlen) != 0) {
            (void)err_set(ERR_IO, "%s:%s: cannot connect for %d s: %m", host, port,
                          CONNECT_S);
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(a);
    return fd;
}

int cluster_tcp_connect(const char *host, const char *port, int *out)
{
    const struct timespec pause = {.tv_nsec = 100000000};

    for (int i = 0; i < CONNECT_S * 10; i++) {
        *out = try_connect(host, port);
        if (*out >= 0) {
            no_delay(*out);
            err_clear();
            return OK;
        }
        nanosleep(&pause, NULL);
    }
    return ERR_IO;
}

int cluster_tcp_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof(a);
    char port[CLUSTER_TCP_PORT_BYTES] = "0";

    if (getsockname(fd, (struct sockaddr *)&a, &n) == 0)
        (void)getnameinfo((struct sockaddr *)&a, n, NULL, 0, port, sizeof(port),
                          NI_NUMERICSERV);
    return atoi(port);
}

int cluster_tcp_host(int fd, bool other, char host[CLUSTER_TCP_HOST_BYTES])
{
    struct sockaddr_storage a;
    socklen_t n = sizeof(a);
    int rc = other ? getpeername(fd, (struct sockaddr *)&a, &n)
                   : getsockname(fd, (struct sockaddr *)&a, &n);

    if (rc != 0 || getnameinfo((struct sockaddr *)&a, n, host, CLUSTER_TCP_HOST_BYTES,
                               NULL, 0, NI_NUMERICHOST) != 0)
        return err_set(ERR_IO, "a connection without an address: %m");
    return OK;
}

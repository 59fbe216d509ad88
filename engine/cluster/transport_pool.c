#include "cluster/transport_pool.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

int cluster_pool_lend(int fd, const struct kv_pool *pool)
{
    int pool_fd = kv_pool_fd(pool);
    char byte = 0;
    union control c = {.bytes = {0}};
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = c.bytes,
                       .msg_controllen = sizeof(c.bytes)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);

    if (pool_fd < 0)
        return err_set(ERR_STATE, "shared memory: the pool is not in shared memory");
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &pool_fd, sizeof(int));
    if (sendmsg(fd, &m, MSG_NOSIGNAL) != 1)
        return err_set(ERR_IO, "shared memory: cannot send the pool's file: %m");
    return OK;
}

static int receive_fd(int fd, int *out)
{
    char byte;
    union control c = {.bytes = {0}};
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = c.bytes,
                       .msg_controllen = sizeof(c.bytes)};
    struct cmsghdr *h;

    if (recvmsg(fd, &m, MSG_CMSG_CLOEXEC) != 1)
        return err_set(ERR_IO, "shared memory: no pool came from the other end");
    h = CMSG_FIRSTHDR(&m);
    if (!h || h->cmsg_type != SCM_RIGHTS || h->cmsg_len != CMSG_LEN(sizeof(int)))
        return err_set(ERR_FORMAT, "shared memory: the other end sent no file");
    memcpy(out, CMSG_DATA(h), sizeof(int));
    return OK;
}

int cluster_pool_borrow(void **pool, size_t *bytes, int fd)
{
    int pool_fd = -1, rc = receive_fd(fd, &pool_fd);
    struct stat st;

    *pool = NULL;
    if (rc != OK)
        return rc;
    if (fstat(pool_fd, &st) != 0) {
        rc = err_set(ERR_IO, "shared memory: the other end's pool: %m");
    } else {
        *bytes = (size_t)st.st_size;
        *pool = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pool_fd, 0);
        if (*pool == MAP_FAILED) {
            *pool = NULL;
            rc = err_set(ERR_NOMEM,
                         "shared memory: cannot map the other end's pool, %zu bytes: %m",
                         *bytes);
        }
    }
    close(pool_fd); /* the mapping keeps the memory */
    return rc;
}

void cluster_pool_give_back(void *pool, size_t bytes)
{
    munmap(pool, bytes);
}

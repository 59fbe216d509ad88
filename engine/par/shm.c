#include "par/shm.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map(struct par_shm *out, int fd, size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED)
        return err_set(ERR_NOMEM, "cannot map %zu bytes of shared memory: %m", bytes);
    *out = (struct par_shm){.base = p, .bytes = bytes, .fd = fd};
    return OK;
}

int par_shm_open(struct par_shm *out, size_t bytes)
{
    int fd, rc;

    memset(out, 0, sizeof(*out));
    if (!bytes)
        return err_set(ERR_ARG, "shared memory of 0 bytes");
    fd = memfd_create("sandwich", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_set(ERR_NOMEM, "cannot make shared memory: %m");
    if (ftruncate(fd, (off_t)bytes) != 0)
        rc = err_set(ERR_NOMEM, "shared memory of %zu bytes: %m", bytes);
    else /* sealed, so that no process can shrink a mapping that others read */
        rc = fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0
                 ? map(out, fd, bytes)
                 : err_set(ERR_IO, "cannot seal shared memory: %m");
    if (rc != OK)
        close(fd);
    return rc;
}

int par_shm_map(struct par_shm *out, int fd, size_t bytes)
{
    struct stat st;
    int own, rc;

    memset(out, 0, sizeof(*out));
    if (fstat(fd, &st) != 0)
        return err_set(ERR_IO, "shared memory: descriptor %d: %m", fd);
    if (!bytes || st.st_size < 0 || (uint64_t)st.st_size < bytes)
        return err_set(ERR_ARG, "shared memory: %zu bytes of %lld", bytes,
                       (long long)st.st_size);
    own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return err_set(ERR_IO, "shared memory: descriptor %d: %m", fd);
    rc = map(out, own, bytes);
    if (rc != OK)
        close(own);
    return rc;
}

void par_shm_close(struct par_shm *s)
{
    if (!s->base)
        return;
    munmap(s->base, s->bytes);
    close(s->fd);
    memset(s, 0, sizeof(*s));
}

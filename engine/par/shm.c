#include "par/shm.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int par_shm_open(struct par_shm *out, size_t bytes)
{
    int fd, rc = OK;
    void *p;

    memset(out, 0, sizeof(*out));
    if (!bytes)
        return err_set(ERR_ARG, "shared memory of 0 bytes");
    fd = memfd_create("sandwich", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_set(ERR_NOMEM, "cannot make shared memory: %m");
    /* sealed, so that no process can shrink a mapping that others read */
    if (ftruncate(fd, (off_t)bytes) != 0)
        rc = err_set(ERR_NOMEM, "shared memory of %zu bytes: %m", bytes);
    else if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
        rc = err_set(ERR_IO, "cannot seal shared memory: %m");
    else if ((p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) ==
             MAP_FAILED)
        rc = err_set(ERR_NOMEM, "cannot map %zu bytes of shared memory: %m", bytes);
    if (rc == OK)
        *out = (struct par_shm){.base = p, .bytes = bytes, .fd = fd};
    else
        close(fd);
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

/* The door to the readers: which one knows the path, and what holds for all of them. */
#include "model/file/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "model/file/map.h"

static const struct model_reader *find_reader(const char *path)
{
    int i;

    for (i = 0; model_readers[i]; i++)
        if (model_readers[i]->probe(path))
            return model_readers[i];
    return NULL;
}

int model_file_open(struct model_file **out, const char *path)
{
    struct model_file *f = NULL;
    struct stat st;
    int rc = OK;

    *out = NULL;
    if (stat(path, &st) != 0)
        return err_set(ERR_IO, "%s: cannot open: %m", path);
    f = mem_new(MEM_MODEL_FILE, 1, sizeof(*f));
    if (!f)
        return ERR_NOMEM;
    if (snprintf(f->path, sizeof(f->path), "%s", path) >= (int)sizeof(f->path)) {
        rc = err_set(ERR_LIMIT, "%.60s...: path: expected at most %zu bytes, found %zu",
                     path, sizeof(f->path) - 1, strlen(path));
        goto out;
    }
    f->config.bos_id = f->config.eos_id = -1;
    f->reader = find_reader(path);
    if (!f->reader) {
        rc = err_set(
            ERR_FORMAT,
            "%s: expected a GGUF file, a directory with config.json, or a llama2.c "
            ".bin, found none of them",
            path);
        goto out;
    }
    snprintf(f->format, sizeof(f->format), "%s", f->reader->name);
    if ((rc = f->reader->open(f, path)) != OK || (rc = model_file_check_tensors(f)) != OK)
        goto out;
    *out = f, f = NULL;
out:
    model_file_close(&f);
    return rc;
}

void model_file_close(struct model_file **f)
{
    if (!*f)
        return;
    if ((*f)->reader)
        (*f)->reader->close(*f);
    mem_free((*f)->layer);
    mem_free(*f);
    *f = NULL;
}

void model_file_drop(const struct model_tensor *t)
{
    model_map_drop(t->data,
                   (uint64_t)t->rows * (uint64_t)t->cols * kern_type_bytes(t->type));
}

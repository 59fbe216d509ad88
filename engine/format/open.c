/* The public API of the readers: which one knows the path, and what holds for all of them. */
#include "format/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/file_map.h"

static const struct format_reader *find_reader(const char *path)
{
    int i;

    for (i = 0; format_readers[i]; i++)
        if (format_readers[i]->probe(path))
            return format_readers[i];
    return NULL;
}

int format_open(struct format_file **out, const char *path)
{
    struct format_file *f = NULL;
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
            "%s: expected a GGUF file, a directory with config.json, a llama2.c .bin, "
            "or an ONNX file, found none of them",
            path);
        goto out;
    }
    snprintf(f->format, sizeof(f->format), "%s", f->reader->name);
    if ((rc = f->reader->open(f, path)) != OK || (rc = format_check_tensors(f)) != OK ||
        (rc = file_map_check()) != OK)
        goto out;
    *out = f, f = NULL;
out:
    format_close(&f);
    return rc;
}

void format_close(struct format_file **f)
{
    if (!*f)
        return;
    if ((*f)->reader)
        (*f)->reader->close(*f);
    mem_free((*f)->latent);
    mem_free((*f)->expert);
    mem_free((*f)->layer);
    mem_free(*f);
    *f = NULL;
}

static uint64_t bytes_of(const struct format_tensor *t)
{
    return (uint64_t)t->rows * kern_type_size(t->type, t->cols);
}

void format_will_need(const struct format_tensor *t)
{
    if (!t->in_memory)
        file_map_will_need(t->data, bytes_of(t));
}

void format_drop(const struct format_tensor *t)
{
    if (!t->in_memory)
        file_map_drop(t->data, bytes_of(t));
}

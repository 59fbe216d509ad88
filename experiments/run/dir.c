#include "experiments/run/dir.h"

#include <string.h>
#include <zlib.h>

#include "base/text.h"

#define TAG_MAX   64
#define TAG_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."

static int check_tag(const char *tag)
{
    size_t n = strlen(tag);

    if (n > 0 && n <= TAG_MAX && *tag != '.' && tag[strspn(tag, TAG_CHARS)] == 0)
        return OK;
    return err_set(ERR_ARG,
                   "--tag: expected at most %d letters, digits, '_', '-' or '.', not "
                   "beginning with '.'; found \"%s\"",
                   TAG_MAX, tag);
}

/* Words in another order are another command: resuming needs no more. */
static uint32_t hash_sets(const struct job_read_opts *o, struct text *t)
{
    for (int i = 0; i < o->n_sets; i++)
        text_put(t, o->sets[i], strlen(o->sets[i]) + 1);
    return t->rc == OK ? (uint32_t)crc32_z(0, (const Bytef *)t->p, t->n) : 0;
}

static int put_changes(struct text *path, const struct job_read_opts *o)
{
    struct text sets = {0};
    int rc;

    if (o->smoke)
        text_puts(path, "/smoke");
    if (o->n_sets > 0)
        text_printf(path, "%sset-%08x", o->smoke ? "-" : "/", hash_sets(o, &sets));
    rc = sets.rc;
    text_fini(&sets);
    return rc;
}

int run_dir_of(struct run_dir *d, const char *stem, const char *out, const char *tag,
               const struct job_read_opts *o)
{
    struct text path = {0};
    int rc = OK;

    *d = (struct run_dir){.is_separate = out || tag || o->smoke || o->n_sets > 0};
    if (out && tag)
        return err_set(ERR_ARG, "--tag names a folder in the experiment's own, --out any "
                                "folder: expected one of them, found both");
    if (tag)
        rc = check_tag(tag);
    if (out) {
        text_puts(&path, out);
    } else {
        text_puts(&path, "results/");
        text_puts(&path, stem);
        if (tag) {
            text_puts(&path, "/");
            text_puts(&path, tag);
        } else if (rc == OK) {
            rc = put_changes(&path, o);
        }
    }
    text_put(&path, "", 1);
    if (rc == OK)
        rc = path.rc;
    if (rc == OK)
        d->path = path.p, path.p = NULL; /* the caller's now */
    text_fini(&path);
    return rc;
}

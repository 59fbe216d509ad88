#include "serve/front.h"

#include <string.h>

#include "format/format.h"
#include "serve/impl.h"

static int read_head(struct serve *s)
{
    struct format_file *f;

    if (!s->o.model)
        return err_set(ERR_ARG, "model: no path given");
    TRY(format_open(&f, s->o.model));
    memcpy(s->model_format, f->format, sizeof(s->model_format));
    s->front_config = f->config;
    format_close(&f);
    return OK;
}

const struct serve_front *serve_front_of(const struct serve *s)
{
    return s->front.submit ? &s->front : NULL;
}

int serve_open_front(struct serve **out, const struct serve_opts *o,
                     const struct serve_front *f)
{
    struct serve *s;
    int rc;

    *out = NULL;
    rc = serve_new(&s, o);
    if (s)
        s->front = *f;
    else
        f->close(f->ctx);
    if (rc == OK)
        rc = read_head(s);
    if (rc == OK) {
        s->max_tok = f->max_tok;
        rc = serve_open_tok(s);
    }
    if (rc == OK)
        *out = s, s = NULL; /* the caller's now */
    serve_close(&s);
    return rc;
}

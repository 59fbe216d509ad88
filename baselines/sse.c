#include "baselines/sse.h"

#include <stdbool.h>
#include <string.h>

static bool has_field(const struct text *line, const char *field)
{
    size_t n = strlen(field);

    return line->n >= n && memcmp(line->p, field, n) == 0;
}

/* Append the value of a line to the event's data. llama-server once sent an error as a field
 * of that name. */
static void take_field(struct sut_sse *s)
{
    size_t from;

    if (has_field(&s->line, "data:"))
        from = strlen("data:");
    else if (has_field(&s->line, "error:"))
        from = strlen("error:");
    else
        return; /* a comment, or a field without a meaning here */
    from += from < s->line.n && s->line.p[from] == ' ';
    if (s->data.n)
        text_put(&s->data, "\n", 1);
    text_put(&s->data, s->line.p + from, s->line.n - from);
}

static int end_line(struct sut_sse *s, sut_sse_fn on_event, void *ctx)
{
    int rc = OK;

    if (s->line.n && s->line.p[s->line.n - 1] == '\r')
        s->line.n--;
    if (s->line.n) {
        take_field(s);
    } else if (s->data.n) {
        text_put(&s->data, "", 1);
        if (s->data.rc == OK)
            rc = on_event(ctx, s->data.p, s->data.n - 1);
        s->data.n = 0;
    }
    s->line.n = 0;
    return rc == OK ? s->data.rc : rc;
}

int sut_sse_feed(struct sut_sse *s, const char *p, size_t n, sut_sse_fn on_event,
                 void *ctx)
{
    int rc = OK;

    while (n && rc == OK) {
        const char *end = memchr(p, '\n', n);
        size_t taken = end ? (size_t)(end - p) : n;

        if (s->line.n + s->data.n + taken > SUT_SSE_MAX_BYTES)
            return err_set(ERR_LIMIT, "an event of more than %d bytes",
                           SUT_SSE_MAX_BYTES);
        text_put(&s->line, p, taken);
        rc = s->line.rc;
        if (rc == OK && end)
            rc = end_line(s, on_event, ctx);
        taken += end != NULL;
        p += taken;
        n -= taken;
    }
    return rc;
}

void sut_sse_fini(struct sut_sse *s)
{
    text_fini(&s->line);
    text_fini(&s->data);
}

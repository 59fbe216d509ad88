#include "experiments/harness/journal_cell.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

/* --- encoding */

void journal_encode_row(struct journal_buf *b, const struct metrics_row *row)
{
    journal_put_i64(b, row->request);
    journal_put_u32(b, row->warmup);
    journal_put_i64(b, row->intended_ns);
    journal_put_i64(b, row->dispatch_ns);
    journal_put_i64(b, row->first_token_ns);
    journal_put_i64(b, row->done_ns);
    journal_put_i64(b, row->n_prompt_tok);
    journal_put_i64(b, row->n_output_tok);
    journal_put_i64(b, row->n_tok);
    journal_put_u32(b, (uint32_t)row->status);
    journal_put_f64(b, row->decode_bytes);
    journal_put_f64(b, row->prefill_flop);
    journal_put_text(b, row->error);
    journal_put_bytes(b, row->token_ns, (size_t)row->n_tok * sizeof(*row->token_ns));
}

void journal_encode_value(struct journal_buf *b, const struct metrics_value *v)
{
    journal_put_text(b, v->name);
    journal_put_text(b, v->unit);
    journal_put_f64(b, v->value);
    journal_put_text(b, v->why);
}

void journal_encode_series(struct journal_buf *b, const struct metrics_series *s)
{
    journal_put_text(b, s->name);
    journal_put_text(b, s->unit);
    journal_put_i64(b, (int64_t)s->n);
    journal_put_bytes(b, s->v, s->n * sizeof(*s->v));
}

void journal_encode_end(struct journal_buf *b, const struct record_cell *c, size_t n_rows)
{
    char *text = json_text(c->attributes, JSON_COMPACT | JSON_SORT_KEYS);

    if (!text && b->rc == OK)
        b->rc = ERR_NOMEM;
    journal_put_u32(b, (uint32_t)c->state);
    journal_put_i64(b, (int64_t)n_rows);
    journal_put_i64(b, (int64_t)c->n_values);
    journal_put_i64(b, (int64_t)c->n_series);
    journal_put_text(b, text ? text : "");
    mem_free(text);
}

/* --- decoding. A frame's CRC was right: a bad payload is another version's or a bug. */

static int bad(const char *what)
{
    return err_set(ERR_FORMAT, "journal: a %s frame that does not decode", what);
}

int journal_decode_end(const struct journal_frame *f, struct journal_end *out,
                       json_t **attributes)
{
    struct journal_cursor c = {.p = f->payload, .n = f->n};
    size_t n;
    const char *text;
    uint32_t state = journal_get_u32(&c);

    out->n_rows = (size_t)journal_get_i64(&c);
    out->n_values = (size_t)journal_get_i64(&c);
    out->n_series = (size_t)journal_get_i64(&c);
    n = journal_get_u32(&c);
    text = journal_get_bytes(&c, n);
    if (c.bad || state > RECORD_SKIPPED)
        return bad("END");
    out->state = (enum record_state)state;
    return attributes ? json_read_own(attributes, text, n, "journal: attributes") : OK;
}

/* Room for one more element. */
static int grow(void **array, size_t *cap, size_t n, size_t more, size_t size)
{
    size_t want = *cap ? *cap : 64;
    void *p;

    while (want - n < more)
        want *= 2;
    if (want == *cap)
        return OK;
    p = mem_resize(MEM_HARNESS, *array, want, size);
    if (!p)
        return ERR_NOMEM;
    *array = p;
    *cap = want;
    return OK;
}

static int add_row(struct journal_parts *p, struct journal_cursor *c)
{
    struct metrics_row r = {.request = journal_get_i64(c)};
    const void *token_ns;

    r.warmup = journal_get_u32(c) != 0;
    r.intended_ns = journal_get_i64(c);
    r.dispatch_ns = journal_get_i64(c);
    r.first_token_ns = journal_get_i64(c);
    r.done_ns = journal_get_i64(c);
    r.n_prompt_tok = journal_get_i64(c);
    r.n_output_tok = journal_get_i64(c);
    r.n_tok = journal_get_i64(c);
    r.status = (enum metrics_status)journal_get_u32(c);
    r.decode_bytes = journal_get_f64(c);
    r.prefill_flop = journal_get_f64(c);
    journal_get_text(c, r.error, sizeof(r.error));
    if (c->bad || r.n_tok < 0 || (size_t)r.n_tok != c->n / sizeof(int64_t) ||
        c->n % sizeof(int64_t) != 0 || (unsigned)r.status > METRICS_REJECTED)
        return bad("ROW");
    token_ns = journal_get_bytes(c, c->n);
    if (grow((void **)&p->rows, &p->cap_rows, p->n_rows, 1, sizeof(r)) != OK ||
        grow((void **)&p->token_ns, &p->cap_token, p->n_token, (size_t)r.n_tok + 1,
             sizeof(int64_t)) != OK)
        return ERR_NOMEM;
    memcpy(p->token_ns + p->n_token, token_ns, (size_t)r.n_tok * sizeof(int64_t));
    p->n_token += (size_t)r.n_tok;
    p->rows[p->n_rows++] = r;
    return OK;
}

static int add_value(struct journal_parts *p, struct journal_cursor *c)
{
    struct metrics_value v = {0};

    journal_get_text(c, v.name, sizeof(v.name));
    journal_get_text(c, v.unit, sizeof(v.unit));
    v.value = journal_get_f64(c);
    journal_get_text(c, v.why, sizeof(v.why));
    if (c->bad || c->n)
        return bad("VALUE");
    if (grow((void **)&p->values, &p->cap_values, p->n_values, 1, sizeof(v)) != OK)
        return ERR_NOMEM;
    p->values[p->n_values++] = v;
    return OK;
}

static int add_series(struct journal_parts *p, struct journal_cursor *c)
{
    struct metrics_series s = {0};
    const void *v;

    journal_get_text(c, s.name, sizeof(s.name));
    journal_get_text(c, s.unit, sizeof(s.unit));
    s.n = (size_t)journal_get_i64(c);
    if (c->bad || s.n != c->n / sizeof(double) || c->n % sizeof(double) != 0)
        return bad("SERIES");
    v = journal_get_bytes(c, c->n);
    if (grow((void **)&p->series, &p->cap_series, p->n_series, 1, sizeof(s)) != OK)
        return ERR_NOMEM;
    s.v = mem_new(MEM_HARNESS, s.n, sizeof(*s.v));
    if (!s.v)
        return ERR_NOMEM;
    memcpy(s.v, v, s.n * sizeof(*s.v));
    p->series[p->n_series++] = s;
    return OK;
}

static void clear(struct journal_parts *p)
{
    for (size_t i = 0; i < p->n_series; i++)
        mem_free(p->series[i].v);
    p->n_rows = p->n_token = p->n_values = p->n_series = 0;
    mem_free(p->key);
    p->key = NULL;
}

int journal_parts_begin(struct journal_parts *p, const struct journal_frame *f)
{
    clear(p);
    p->key = mem_strndup(MEM_HARNESS, (const char *)f->payload, f->n);
    return p->key ? OK : ERR_NOMEM;
}

int journal_parts_add(struct journal_parts *p, const struct journal_frame *f)
{
    struct journal_cursor c = {.p = f->payload, .n = f->n};

    switch (f->type) {
    case JOURNAL_ROW:
        return add_row(p, &c);
    case JOURNAL_VALUE:
        return add_value(p, &c);
    case JOURNAL_SERIES:
        return add_series(p, &c);
    default:
        return bad("unknown");
    }
}

void journal_parts_link(struct journal_parts *p)
{
    size_t at = 0;

    for (size_t i = 0; i < p->n_rows; i++) {
        p->rows[i].token_ns = p->token_ns + at;
        at += (size_t)p->rows[i].n_tok;
    }
}

void journal_parts_fini(struct journal_parts *p)
{
    clear(p);
    mem_free(p->rows);
    mem_free(p->token_ns);
    mem_free(p->values);
    mem_free(p->series);
    *p = (struct journal_parts){0};
}

#include "experiments/harness/export_forms.h"

#include <string.h>

/* What a reader looks for first; a cell that publishes none of these shows all it has. */
static const char *const shown[] = {
    "n_completed",           "mean_ttft_ms",           "p50_ttft_ms",
    "p99_ttft_ms",           "mean_tpot_ms",           "p50_tpot_ms",
    "p99_tpot_ms",           "request_throughput_rps", "output_throughput_tok_s",
    "slo_attainment_frac",   "request_goodput_rps",    "decode_tok_s",
    "decode_bandwidth_frac", "prefill_tok_s",          "prefill_peak_frac",
};
#define N_SHOWN (sizeof(shown) / sizeof(shown[0]))

/* A bar or a line break would end the table's cell. */
static void put_text(FILE *f, const char *s)
{
    for (; *s; s++) {
        if (*s == '|')
            fputc('\\', f);
        fputc(*s == '\n' || *s == '\r' ? ' ' : *s, f);
    }
}

static const char *text_of(const json_t *obj, const char *key, const char *otherwise)
{
    const char *s = json_string_value(json_object_get(obj, key));

    return s ? s : otherwise;
}

/* `m`: {"value", "unit", "why"} or NULL. */
static void put_value(FILE *f, const json_t *m)
{
    const json_t *v = json_object_get(m, "value");

    if (json_is_number(v)) {
        fprintf(f, "%.4g", json_number_value(v));
    } else {
        fputs("n/a (", f);
        put_text(f, text_of(m, "why", "not measured"));
        fputc(')', f);
    }
}

static void put_headline(FILE *f, const json_t *headline)
{
    const char *name;
    json_t *m;

    if (json_object_size(headline) == 0)
        return;
    fputs("| headline | value | unit | better |\n|---|---|---|---|\n", f);
    json_object_foreach((json_t *)headline, name, m)
    {
        fputs("| ", f);
        put_text(f, name);
        fputs(" | ", f);
        put_value(f, m);
        fprintf(f, " | %s | %s |\n", text_of(m, "unit", ""), text_of(m, "better", ""));
    }
    fputc('\n', f);
}

/* Does any cell publish `name`? Its unit, else NULL. */
static const char *unit_of(const json_t *cells, const char *name)
{
    size_t i;
    json_t *cell;

    json_array_foreach(cells, i, cell)
    {
        json_t *m = json_object_get(json_object_get(cell, "summary"), name);
        if (m)
            return text_of(m, "unit", "");
    }
    return NULL;
}

static int columns(const json_t *cells, json_t *out)
{
    size_t i;
    json_t *cell, *m;
    const char *name;

    for (size_t k = 0; k < N_SHOWN; k++)
        if (unit_of(cells, shown[k]) &&
            json_array_append_new(out, json_string(shown[k])) != 0)
            return err_set(ERR_NOMEM, "out of memory collecting columns");
    if (json_array_size(out) > 0)
        return OK;
    json_array_foreach(cells, i, cell)
    {
        json_object_foreach(json_object_get(cell, "summary"), name, m)
        {
            bool there = false;
            for (size_t k = 0; k < json_array_size(out); k++)
                there |= strcmp(json_string_value(json_array_get(out, k)), name) == 0;
            if (!there && json_array_append_new(out, json_string(name)) != 0)
                return err_set(ERR_NOMEM, "out of memory collecting columns");
        }
    }
    return OK;
}

static void put_cells(FILE *f, const json_t *cells, const json_t *names)
{
    size_t i, k;
    json_t *cell, *name;

    fputs("| cell | state |", f);
    json_array_foreach(names, k, name)
    {
        const char *s = json_string_value(name), *unit = unit_of(cells, s);
        fputc(' ', f);
        put_text(f, s);
        /* the unit, unless the name already ends in it */
        if (*unit && !strstr(s, unit))
            fprintf(f, " (%s)", unit);
        fputs(" |", f);
    }
    fputs("\n|---|---|", f);
    for (k = 0; k < json_array_size(names); k++)
        fputs("---:|", f);
    fputc('\n', f);
    json_array_foreach(cells, i, cell)
    {
        json_t *a = json_object_get(cell, "attributes");
        fputs("| ", f);
        put_text(f, text_of(a, "key", ""));
        fprintf(f, " | %s |", text_of(a, "state", ""));
        json_array_foreach(names, k, name)
        {
            fputc(' ', f);
            put_value(f, json_object_get(json_object_get(cell, "summary"),
                                         json_string_value(name)));
            fputs(" |", f);
        }
        fputc('\n', f);
    }
}

int export_markdown(const struct export_result *r, FILE *f)
{
    json_t *root = NULL, *headline = NULL, *cells = NULL, *names = json_array();
    int rc = names ? export_root(r, &root, &headline)
                   : err_set(ERR_NOMEM, "%s: out of memory", r->path);

    if (rc == OK)
        rc = export_cells(r, &cells);
    if (rc == OK)
        rc = columns(cells, names);
    if (rc == OK) {
        fprintf(f, "# %s\n\n%s, %s, commit %.12s%s, %s\n\n",
                text_of(root, "experiment", "?"), text_of(root, "utc", "?"),
                text_of(root, "host", "?"), text_of(root, "commit", "?"),
                json_is_true(json_object_get(root, "dirty")) ? " with changes" : "",
                text_of(root, "truth", "?"));
        put_headline(f, headline);
        put_cells(f, cells, names);
    }
    json_decref(names);
    json_decref(cells);
    json_decref(headline);
    json_decref(root);
    return rc;
}

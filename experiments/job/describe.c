/* A job, and all jobs, in words. */
#include "experiments/job/impl.h"

#include <string.h>

#include "base/utf8.h"
#include "baselines/sut.h"
#include "datasets/dataset.h"
#include "experiments/load/load.h"
#include "experiments/load/study.h"

static void print_value(const json_t *v, FILE *f)
{
    char *s;

    if (!v || json_is_null(v)) {
        fprintf(f, "-");
        return;
    }
    if (json_is_real(v)) {
        fprintf(f, "%g", json_real_value(v));
        return;
    }
    s = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    utf8_print(f, s ? s : "?");
    free(s);
}

static void print_rows(const struct opt_row *rows, const json_t *values, FILE *f)
{
    for (; rows->name; rows++) {
        const char *unit = rows->unit && rows->type != OPT_STR ? rows->unit : "";

        fprintf(f, "    %-26s ", rows->name);
        print_value(json_object_get(values, rows->name), f);
        fprintf(f, "%s%s\n%32s%s%s%s%s%s%s\n", *unit ? " " : "", unit, "", rows->help,
                rows->names ? " " : "", opt_names(rows), rows->def ? " [default " : "",
                rows->def ? rows->def : "", rows->def ? "]" : "");
    }
}

static void print_headlines(const struct job *j, FILE *f)
{
    static const char *const over[] = {"",     "geomean", "min",  "max",
                                       "mean", "sum",     "share"};

    if (j->n_headlines)
        fprintf(f, "\n  headline numbers\n");
    for (int i = 0; i < j->n_headlines; i++) {
        const struct job_headline *h = &j->headlines[i];
        char name[256];

        utf8_show(name, sizeof(name), h->name);
        fprintf(f, "    %-40s %s%s%s (%s is better)%s where ", name, over[h->over],
                over[h->over][0] ? " of " : "", h->metric, h->better ? "lower" : "higher",
                h->needs_finite ? ", missing ones left out," : "");
        print_value(h->where, f);
        if (h->relative_to) {
            fprintf(f, ", divided by that where ");
            print_value(h->relative_to, f);
        }
        fprintf(f, "\n");
    }
}

static void print_metrics(const struct study *s, FILE *f)
{
    fprintf(f, "\n  metrics\n");
    for (const struct study_metric *m = s->metrics; m->name; m++)
        fprintf(f, "    %-26s %s%s%s%s%s\n", m->name, m->text, m->unit[0] ? ", " : "",
                m->unit, m->better[0] ? "; better: " : "", m->better);
}

static void print_text(const char *label, const char *text, FILE *f)
{
    if (!text)
        return;
    fprintf(f, "  %-9s ", label);
    utf8_print(f, text);
    fprintf(f, "\n");
}

static void print_prepare(const struct job *j, FILE *f)
{
    for (size_t i = 0; i < json_array_size(j->prepare); i++) {
        const json_t *p = json_array_get(j->prepare, i);

        print_text("prepare", json_string_value(json_object_get(p, "creates")), f);
        fprintf(f, "            if absent, by ");
        print_value(json_object_get(p, "run"), f);
        fprintf(f, "\n");
    }
}

static void print_settings(const json_t *overlay, FILE *f)
{
    const char *section, *key;
    json_t *object, *v;

    json_object_foreach((json_t *)overlay, section, object)
    {
        json_object_foreach(object, key, v)
        {
            fprintf(f, " %s.%s=", section, key);
            job_put_value(v, false, f);
        }
    }
}

static void print_overlays(const struct job *j, FILE *f)
{
    for (int a = 0; a < j->n_axes; a++) {
        const struct job_axis *x = &j->axes[a];

        if (!x->kind)
            continue;
        fprintf(f, "\n  %s: settings laid over those below\n", x->kind->list);
        for (size_t i = 0; i < json_array_size(x->overlays); i++) {
            const json_t *v = json_array_get(x->overlays, i);
            char name[256];

            utf8_show(name, sizeof(name), json_string_value(json_object_get(v, "name")));
            fprintf(f, "    %-26s", name);
            print_settings(v, f);
            fprintf(f, "\n");
        }
    }
}

void job_describe(const struct job *j, FILE *f)
{
    fprintf(f, "%s%s\n", j->stem, j->smoke ? " (smoke)" : "");
    print_text("about", j->head.about, f);
    print_text("claim", j->claim.text, f);
    print_text("paper", j->claim.paper, f);
    print_text("section", j->claim.section, f);
    print_text("figure", j->claim.figure, f);
    print_text("expect", j->head.expect, f);
    print_text("evidence", j->evidence, f);
    for (size_t i = 0; i < json_array_size(j->needs); i++)
        print_text(i ? "" : "needs", json_string_value(json_array_get(j->needs, i)), f);
    fprintf(f, "  %-9s %g min, %g MB of disk\n", "cost", j->cost.minutes,
            j->cost.disk_mb);
    print_prepare(j, f);
    fprintf(f, "  %-9s %d", "cells", j->n_cells);
    for (int a = 0; a < j->n_axes; a++)
        fprintf(f, "%s%zu %s", a ? " x " : " = ", json_array_size(j->axes[a].values),
                j->axes[a].name);
    fprintf(f, "%s", j->n_axes ? " x " : " = ");
    if (j->head.repeats_auto)
        fprintf(f, "%lld to ", (long long)j->head.repeats_min);
    fprintf(f, "%lld repeats\n", (long long)j->head.repeats);
    print_overlays(j, f);
    for (const struct job_section *s = j->sections; s->name; s++) {
        const json_t *values = json_object_get(j->resolved, s->name);
        const struct opt_row *opts;

        fprintf(f, "\n  %s: %s\n", s->name, s->help);
        if (s->choice) {
            fprintf(f, "    %-26s ", s->choice);
            print_value(json_object_get(values, s->choice), f);
            fprintf(f, "\n%32sone of", "");
            for (int i = 0; s->names(i); i++)
                fprintf(f, "%s %s", i ? "," : "", s->names(i));
            fprintf(f, "\n");
        }
        /* With an axis over adapters or with variants, those of the first cell are shown. */
        if (job_section_opts(s, json_object_get(j->cells[0].settings, s->name), &opts,
                             s->name) == OK)
            print_rows(opts, values, f);
        if (json_object_get(values, "scale")) {
            fprintf(f, "    %-26s ", "scale");
            print_value(json_object_get(values, "scale"), f);
            fprintf(f, "\n");
        }
    }
    if (j->study)
        print_metrics(j->study, f);
    print_headlines(j, f);
}

/* --- every key there is */

/* The calls made for each table, and for each plug-in that is a value: "load.process",
 * "poisson". */
struct docs {
    void (*table)(struct docs *d, const char *section, const char *plugin,
                  const char *help, const struct opt_row *rows);
    void (*value)(struct docs *d, const char *key, const char *name, const char *help);
    const char *pattern;
    FILE *f;
    int n; /* found */
};

static void each_table(struct docs *d)
{
    for (const struct job_section *s = job_serve_sections; s->name; s++)
        if (s->opts)
            d->table(d, s->name, NULL, s->help, s->opts);
    for (int i = 0; load_processes[i]; i++)
        d->value(d, "load.process", load_processes[i]->name, load_processes[i]->help);
    for (int i = 0; dataset_readers[i]; i++)
        d->value(d, "dataset.reader", dataset_readers[i]->name, dataset_readers[i]->help);
    for (int i = 0; sut_adapters[i]; i++)
        d->table(d, "system", sut_adapters[i]->name, sut_adapters[i]->help,
                 sut_adapters[i]->opts);
    for (int i = 0; studies[i]; i++)
        d->table(d, "study", studies[i]->name, studies[i]->help, studies[i]->opts);
}

static void print_table(struct docs *d, const char *section, const char *plugin,
                        const char *help, const struct opt_row *rows)
{
    if (plugin)
        fprintf(d->f, "\n## %s, %s %s\n%s\n\n", section,
                job_section_find(section)->choice, plugin, help);
    else
        fprintf(d->f, "\n## %s\n%s\n\n", section, help);
    opt_help_markdown(rows, d->f);
}

static void print_plugin(struct docs *d, const char *key, const char *name,
                         const char *help)
{
    fprintf(d->f, "\n%s `%s`: %s\n", key, name, help);
}

void job_docs(FILE *f)
{
    struct docs d = {.table = print_table, .value = print_plugin, .f = f};

    fprintf(f, "# Keys of an experiment\n"
               "A job either serves requests (sections system, dataset, load, slo, "
               "seeds) or runs\na "
               "study (section study). In these sections a list in place of a value "
               "makes an\naxis.\n");
    print_table(&d, "(top)", NULL, "Keys outside the sections below.",
                job_head_opt_table);
    print_table(&d, "claim", NULL, "The claim to reproduce.", job_claim_opt_table);
    print_table(&d, "cost", NULL, "Time and disk that a run takes.", job_cost_opt_table);
    print_table(
        &d, "headline", NULL,
        "List of numbers that summarise the experiment. `where` {option: value "
        "or list of values} selects the cells. Where several settings match, "
        "each gets its own number, whose name ends in its values. `relative_to` "
        "{option: value} makes it a ratio: each cell's value is divided by that "
        "of the cell of the same repeat that has these values and is otherwise "
        "the same, such as {\"variant\": \"one_plan\"}. A list of metrics, and "
        "`each`, a list of axes, make one of each: {metric} and {AXIS} in the name "
        "stand for its value, or for the short form that the job's object `words` "
        "{value: text} has.",
        job_headline_opt_table);
    for (int i = 0; i < 2; i++) {
        const struct job_overlay_kind *k = i ? &job_variants : &job_cases;

        fprintf(f,
                "\n## %s\nList of {\"name\": text, section: {option: value}}, an axis "
                "`%s`. %s `%s`, a name or a list of names, selects some (--set "
                "%s=NAME).\n",
                k->list, k->axis, k->help, k->axis, k->axis);
    }
    fprintf(
        f,
        "\n## prepare\nList of {\"run\": [words], \"creates\": path}: a command that is "
        "run before the cells when the file is absent.\n"
        "\n## needs\nList of texts: what the machine or the folder must have.\n"
        "\n## smoke\nSettings that replace those above with --smoke.\n");
    each_table(&d);
}

static bool has(const char *text, const char *pattern)
{
    return text && strcasestr(text, pattern);
}

static void find_in_table(struct docs *d, const char *section, const char *plugin,
                          const char *help, const struct opt_row *rows)
{
    char name[160];

    (void)help;
    for (; rows->name; rows++) {
        snprintf(name, sizeof(name), "%s.%s", section, rows->name);
        if (!has(name, d->pattern) && !has(plugin, d->pattern) &&
            !has(rows->help, d->pattern))
            continue;
        fprintf(d->f, "%s%s%s\n", name, plugin ? " of " : "", plugin ? plugin : "");
        opt_help_row(rows, d->f);
        d->n++;
    }
}

static void find_plugin(struct docs *d, const char *key, const char *name,
                        const char *help)
{
    if (!has(key, d->pattern) && !has(name, d->pattern) && !has(help, d->pattern))
        return;
    fprintf(d->f, "%s=%s\n", key, name);
    opt_help_row(&(const struct opt_row){.help = help}, d->f);
    d->n++;
}

int job_find_keys(const char *pattern, FILE *f)
{
    struct docs d = {
        .table = find_in_table, .value = find_plugin, .pattern = pattern, .f = f};

    each_table(&d);
    return d.n ? OK
               : err_set(ERR_NOTFOUND,
                         "no key matches \"%s\"; `testbed describe keys` lists all",
                         pattern);
}

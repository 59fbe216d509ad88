/* A job, and all jobs, in words. */
#include "experiments/harness/job_private.h"

#include <string.h>

#include "baselines/sut.h"
#include "datasets/dataset.h"
#include "experiments/harness/load.h"
#include "experiments/harness/study.h"

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
    fprintf(f, "%s", s ? s : "?");
    free(s);
}

static void print_rows(const struct opt_row *rows, const json_t *values, FILE *f)
{
    for (; rows->name; rows++) {
        fprintf(f, "    %-26s ", rows->name);
        print_value(json_object_get(values, rows->name), f);
        fprintf(f, "%s%s\n%32s%s%s%s%s\n", rows->unit ? " " : "",
                rows->unit ? rows->unit : "", "", rows->help,
                rows->def ? " [default " : "", rows->def ? rows->def : "",
                rows->def ? "]" : "");
    }
}

static void print_headlines(const struct job *j, FILE *f)
{
    static const char *const over[] = {"", "geomean", "min", "max", "mean", "sum"};

    if (j->n_headlines)
        fprintf(f, "\n  headline\n");
    for (int i = 0; i < j->n_headlines; i++) {
        const struct job_headline *h = &j->headlines[i];

        fprintf(f, "    %-40s %s%s%s (%s is better)%s where ", h->name, over[h->over],
                over[h->over][0] ? " of " : "", h->metric, h->better ? "lower" : "higher",
                h->needs_finite ? ", missing ones left out," : "");
        print_value(h->where, f);
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

static void print_prepare(const struct job *j, FILE *f)
{
    for (size_t i = 0; i < json_array_size(j->prepare); i++) {
        const json_t *p = json_array_get(j->prepare, i);

        fprintf(f, "  prepare   %s if absent\n",
                json_string_value(json_object_get(p, "creates")));
    }
}

static void print_text(const char *label, const char *text, FILE *f)
{
    if (text)
        fprintf(f, "  %-9s %s\n", label, text);
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
    print_text("evidence", job_evidence_name(j), f);
    for (size_t i = 0; i < json_array_size(j->needs); i++)
        print_text(i ? "" : "needs", json_string_value(json_array_get(j->needs, i)), f);
    fprintf(f, "  %-9s %g min, %g MB of disk\n", "cost", j->cost.minutes,
            j->cost.disk_mb);
    print_prepare(j, f);
    fprintf(f, "  %-9s %d", "cells", j->n_cells);
    for (int a = 0; a < j->n_axes; a++)
        fprintf(f, "%s%zu %s", a ? " x " : " = ", json_array_size(j->axes[a].values),
                j->axes[a].name);
    fprintf(f, "%s%lld repeats\n", j->n_axes ? " x " : " = ", (long long)j->head.repeats);
    for (const struct job_section *s = j->sections; s->name; s++) {
        const json_t *values = json_object_get(j->resolved, s->name);
        const struct opt_row *opts;

        fprintf(f, "\n  %s: %s\n", s->name, s->help);
        if (s->choice) {
            fprintf(f, "    %-26s ", s->choice);
            print_value(json_object_get(values, s->choice), f);
            fprintf(f, "\n");
        }
        /* An axis over adapters has no one table: the first cell's stands for it. */
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

static void docs_table(const char *title, const char *help, const struct opt_row *rows,
                       FILE *f)
{
    fprintf(f, "\n## %s\n%s\n\n", title, help);
    opt_help_markdown(rows, f);
}

void job_docs(FILE *f)
{
    char title[96];

    fprintf(f, "# Keys of an experiment\n"
               "A job serves (system, dataset, load, slo, seeds) or studies (study). In "
               "these sections\na list makes an axis.\n");
    docs_table("(top)", "Beside the sections below.", job_head_opt_table, f);
    docs_table("claim", "What is to be reproduced.", job_claim_opt_table, f);
    docs_table("cost", "What a run takes.", job_cost_opt_table, f);
    docs_table("headline",
               "List of scalars that stand for the experiment; `where` "
               "{option: value or list of values} picks the cells.",
               job_headline_opt_table, f);
    fprintf(f,
            "\n## prepare\nList of {\"run\": [words], \"creates\": path}: commands run "
            "before the cells when the file is absent.\n"
            "\n## needs\nList of texts: what the machine or the folder must have.\n"
            "\n## smoke\nMerged over the rest by --smoke.\n");
    for (const struct job_section *s = job_serve_sections; s->name; s++)
        if (s->opts)
            docs_table(s->name, s->help, s->opts, f);
    for (int i = 0; load_processes[i]; i++)
        fprintf(f, "\nload.process `%s`: %s\n", load_processes[i]->name,
                load_processes[i]->help);
    for (int i = 0; dataset_readers[i]; i++)
        fprintf(f, "\ndataset.reader `%s`: %s\n", dataset_readers[i]->name,
                dataset_readers[i]->help);
    for (int i = 0; sut_adapters[i]; i++) {
        snprintf(title, sizeof(title), "system, adapter %s", sut_adapters[i]->name);
        docs_table(title, sut_adapters[i]->help, sut_adapters[i]->opts, f);
    }
    for (int i = 0; studies[i]; i++) {
        snprintf(title, sizeof(title), "study, name %s", studies[i]->name);
        docs_table(title, studies[i]->help, studies[i]->opts, f);
    }
}

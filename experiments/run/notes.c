/* What a reader of the table must know besides its numbers: which cells were skipped, and
 * which variants turned out to be the same system. */
#include "experiments/run/session.h"

#include <string.h>

#include "base/mem.h"

static void print_skipped(const struct run_summary *s, FILE *f)
{
    for (int i = 0; i < s->job->n_cells; i++) {
        int n = 0;

        for (int k = 0; s->skipped[i] && k < s->job->n_cells; k++) {
            bool same = s->skipped[k] && strcmp(s->skipped[i], s->skipped[k]) == 0;

            if (same && k < i) /* printed with that one */
                n = s->job->n_cells + 1;
            n += same;
        }
        if (n > 0 && n <= s->job->n_cells)
            fprintf(f, "\nskipped: %s%s: %s\n", s->job->cells[i].label,
                    n > 1 ? " and others" : "", s->skipped[i]);
    }
}

/* Of n neighbouring cells, those that are the same system as the first. */
static void print_same(const struct run_summary *s, int first, int n, bool *named,
                       FILE *f)
{
    const char *label = s->job->cells[first].label, *own = s->configuration[first];
    const struct job_axis *a = job_variant_axis(s->job);
    int n_same = 0, width = (int)(strstr(label, "variant=") - label);

    for (int i = first + 1; own && i < first + n; i++)
        n_same += !job_is_again(s->job, &s->job->cells[i]) && s->configuration[i] &&
                  strcmp(s->configuration[i], own) == 0;
    if (n_same == 0 || named[first])
        return;
    fprintf(f, "\nsame configuration: %.*s", width, label);
    for (int i = first; i < first + n; i++)
        if (!job_is_again(s->job, &s->job->cells[i]) && s->configuration[i] &&
            strcmp(s->configuration[i], own) == 0) {
            const json_t *name = json_object_get(s->job->cells[i].axes, a->name);

            fprintf(f, "%s%s", i > first ? ", " : "", json_string_value(name));
            named[i] = true;
        }
    fprintf(f, " (%s)\n", own);
}

void run_notes_print(const struct run_summary *s, FILE *f)
{
    const struct job_axis *a = job_variant_axis(s->job);
    int n = a ? (int)json_array_size(a->values) : 1;
    bool *named = mem_new(MEM_HARNESS, (size_t)s->job->n_cells, sizeof(*named));

    print_skipped(s, f);
    for (int i = 0; named && a && i < s->job->n_cells / (int)s->job->head.repeats; i++)
        print_same(s, i, n - i % n, named, f);
    mem_free(named);
}

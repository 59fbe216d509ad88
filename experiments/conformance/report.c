#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"
#include "experiments/conformance/run.h"

#define P_MAX   0.01 /* a chance below it is not taken for noise */
#define N_SHOWN 3    /* findings of a relation, for people */

/* --- judgement */

static bool must_be_exact(const struct conform_run *r, enum conform_mode mode)
{
    return r->o->exact || r->o->roles || r->floor[mode].n_differ == 0;
}

static void judge_cases(const struct conform_run *r, struct conform_outcome *o)
{
    for (int m = 0; m < CONFORM_N_MODES; m++) {
        o->p[m] = o->cases[m].n_differ == 0 ? 1
                  : must_be_exact(r, m)     ? 0
                                            : conform_p_value(&r->floor[m], &o->cases[m]);
        o->wrong[m] = o->p[m] < P_MAX / CONFORM_N_MODES;
    }
}

static bool is_wrong(const struct conform_outcome *o)
{
    return o->wrong[CONFORM_GREEDY] || o->wrong[CONFORM_SAMPLED];
}

static double least_p(const struct conform_outcome *o)
{
    return o->p[CONFORM_GREEDY] < o->p[CONFORM_SAMPLED] ? o->p[CONFORM_GREEDY]
                                                        : o->p[CONFORM_SAMPLED];
}

/* The outcome of the relation that found it; NULL: it is part of the noise floor. */
static const struct conform_outcome *outcome_of(const struct conform_run *r,
                                                const struct conform_finding *f)
{
    for (int i = 0; conform_relations[i]; i++)
        if (strcmp(conform_relations[i]->name, f->relation) == 0)
            return &r->outcomes[i];
    return NULL;
}

static bool above_noise(const struct conform_run *r, const struct conform_finding *f)
{
    const struct conform_outcome *o = outcome_of(r, f);

    return f->kind != CONFORM_WRONG ||
           (o ? o->wrong[f->mode] : r->o->exact || r->o->roles);
}

void conform_judge(struct conform_run *r, struct conform_result *result)
{
    for (int i = 0; conform_relations[i]; i++) {
        struct conform_outcome *o = &r->outcomes[i];

        judge_cases(r, o);
        result->n_failed += o->n_failed;
        result->n_unchecked += !o->unavailable && conform_sum(o->cases).n == 0;
        for (int m = 0; m < CONFORM_N_MODES; m++)
            result->n_wrong += o->wrong[m] ? (int)o->cases[m].n_differ : 0;
    }
    if (r->o->exact || r->o->roles)
        result->n_wrong += (int)conform_sum(r->floor).n_differ;
    result->n_unchecked += conform_sum(r->floor).n == 0;
    result->n_failed += r->floor_outcome.n_failed;
    for (int i = 0; i < r->n_findings; i++)
        if (r->findings[i].kind == CONFORM_SILENT)
            result->n_silent += (int)r->findings[i].n;
        else if (r->findings[i].kind == CONFORM_HANG)
            result->n_hangs += (int)r->findings[i].n;
}

/* --- for people */

static void print_head(const struct conform_run *r, FILE *out)
{
    const struct sut_openai_probe *p = conform_client_probe(r->server);
    const struct conform_tally floor = conform_sum(r->floor);
    double s = (double)(clock_ns() - r->begun_ns) / 1e9;

    fprintf(out,
            "%s, model %s%s%s%s%s: prompts of %s, answers %s token ids; %lld requests in "
            "%.1f s.\n",
            p->url, p->model, p->kind[0] ? ", " : "", p->kind, p->version[0] ? " " : "",
            p->version, p->as_text ? "words" : "token ids",
            r->has_ids ? "with" : "without", (long long)r->n_asked, s);
    fprintf(out,
            "Noise floor: %lld of %lld repeats of a request got another answer (sampled "
            "ones: %lld of %lld)%s.\n",
            (long long)floor.n_differ, (long long)floor.n,
            (long long)r->floor[CONFORM_SAMPLED].n_differ,
            (long long)r->floor[CONFORM_SAMPLED].n,
            floor.n == 0 ? ": nothing can be said"
            : must_be_exact(r, CONFORM_GREEDY) && must_be_exact(r, CONFORM_SAMPLED)
                ? ": answers must be equal"
                : ": only what is above it counts");
}

static void print_outcome(const struct conform_run *r, const char *name,
                          const struct conform_outcome *o, FILE *out)
{
    const struct conform_tally cases = conform_sum(o->cases);

    if (o->unavailable) {
        fprintf(out, "  %-10s does not apply: %s\n", name, o->unavailable);
        return;
    }
    fprintf(out, "  %-10s %4lld of %4lld differ", name, (long long)cases.n_differ,
            (long long)cases.n);
    if (is_wrong(o))
        fprintf(out, "  WRONG");
    else if (cases.n_differ)
        fprintf(out, "  within the noise (p = %.2g)", least_p(o));
    else if (cases.n == 0)
        fprintf(out, "  NOT CHECKED%s",
                r->n_hangs         ? ": the server hangs"
                : o->n_failed == 0 ? ": the time was over"
                                   : "");
    if (o->n_failed)
        fprintf(out, "; %lld requests failed: %s", (long long)o->n_failed, o->error);
    if (o->note[0])
        fprintf(out, "; %s", o->note);
    fprintf(out, "\n");
}

static void print_wrong(const struct conform_finding *f, FILE *out)
{
    fprintf(out, "WRONG ANSWER %s, round %lld: when %s, ", f->relation,
            (long long)f->round, f->what);
    if (f->at_tok >= 0)
        fprintf(out, "token %lld was %lld instead of %lld", (long long)f->at_tok,
                (long long)f->got_id, (long long)f->want_id);
    else
        fprintf(out, "the text differs from byte %lld on", (long long)f->at_byte);
    fprintf(out, "; after \"%s\" came \"%s\"", f->before, f->got_after);
    if (f->want_after[0])
        fprintf(out, ", expected \"%s\"", f->want_after);
    fprintf(out, "\n");
}

static void print_findings(const struct conform_run *r, FILE *out)
{
    static const char *const kinds[] = {
        [CONFORM_SILENT] = "SILENT", [CONFORM_HANG] = "HANG"};
    const char *relation = "";
    int n_shown = 0;

    for (int i = 0; i < r->n_findings; i++) {
        const struct conform_finding *f = &r->findings[i];

        if (!above_noise(r, f))
            continue;
        if (f->kind != CONFORM_WRONG) {
            fprintf(out, "%s %lld times, first in %s, round %lld%s: %s\n", kinds[f->kind],
                    (long long)f->n, f->relation, (long long)f->round,
                    f->streamed ? ", streamed" : "", f->what);
            continue;
        }
        n_shown = strcmp(relation, f->relation) == 0 ? n_shown + 1 : 1;
        relation = f->relation;
        if (n_shown <= N_SHOWN)
            print_wrong(f, out);
    }
    if (r->n_more)
        fprintf(out, "%lld more findings are not kept.\n", (long long)r->n_more);
}

/* Nearly every relation sends a prompt again. */
static void print_advice(const struct conform_run *r, FILE *out)
{
    for (int i = 0; conform_relations[i]; i++)
        if (strcmp(conform_relations[i]->name, "prefix") == 0 &&
            is_wrong(&r->outcomes[i]))
            fprintf(out, "Since prompts that were computed before get other answers, "
                         "other relations may be wrong for this reason alone.\n");
}

void conform_print(const struct conform_run *r, const struct conform_result *result,
                   FILE *out)
{
    print_head(r, out);
    if (r->floor_outcome.n_failed)
        fprintf(out, "%lld requests failed meanwhile: %s\n",
                (long long)r->floor_outcome.n_failed, r->floor_outcome.error);
    for (int i = 0; conform_relations[i]; i++)
        print_outcome(r, conform_relations[i]->name, &r->outcomes[i], out);
    print_findings(r, out);
    print_advice(r, out);
    fprintf(out,
            "%d wrong answers, %d silent outcomes, %d hangs, %d relations not "
            "checked.\n",
            result->n_wrong, result->n_silent, result->n_hangs, result->n_unchecked);
}

/* --- for programs */

static json_t *finding_json(const struct conform_run *r, const struct conform_finding *f)
{
    static const char *const kinds[] = {"wrong", "silent", "hang"};
    json_t *j =
        json_pack("{s:s, s:s, s:I, s:s, s:b, s:b, s:I, s:b}", "kind", kinds[f->kind],
                  "relation", f->relation, "round", (json_int_t)f->round, "what", f->what,
                  "streamed", f->streamed, "sampled", f->mode == CONFORM_SAMPLED, "n",
                  (json_int_t)f->n, "above_noise", above_noise(r, f));
    json_t *where = NULL;

    if (f->kind == CONFORM_WRONG)
        where = json_pack("{s:I, s:I, s:I, s:I, s:s, s:s, s:s}", "at_tok",
                          (json_int_t)f->at_tok, "expected_id", (json_int_t)f->want_id,
                          "found_id", (json_int_t)f->got_id, "at_byte",
                          (json_int_t)f->at_byte, "before", f->before, "expected",
                          f->want_after, "found", f->got_after);
    if (where)
        json_object_update(j, where);
    json_decref(where);
    return j;
}

static json_t *outcome_json(const struct conform_relation *k,
                            const struct conform_outcome *o)
{
    const struct conform_tally cases = conform_sum(o->cases);

    return json_pack("{s:s, s:s, s:I, s:I, s:b, s:o, s:I, s:s, s:s?, s:s}", "name",
                     k->name, "about", k->about, "n_cases", (json_int_t)cases.n,
                     "n_differ", (json_int_t)cases.n_differ, "wrong", is_wrong(o), "p",
                     json_number(least_p(o)), "n_failed", (json_int_t)o->n_failed,
                     "error", o->error, "unavailable", o->unavailable, "note", o->note);
}

int conform_write_json(const struct conform_run *r, const struct conform_result *result,
                       const char *path)
{
    json_t *relations = json_array(), *findings = json_array(), *j;
    int rc;

    for (int i = 0; conform_relations[i]; i++)
        json_array_append_new(relations,
                              outcome_json(conform_relations[i], &r->outcomes[i]));
    for (int i = 0; i < r->n_findings; i++)
        json_array_append_new(findings, finding_json(r, &r->findings[i]));
    j = json_pack("{s:i, s:o, s:o, s:{s:I, s:I, s:I, s:I}, s:o, s:o, s:I, s:I, s:i, s:i, "
                  "s:i, s:i, s:I}",
                  "format", 1, "server",
                  sut_openai_probe_json(conform_client_probe(r->server)), "options",
                  opt_to_json(conform_opt_table, r->o), "noise_floor", "n_repeats",
                  (json_int_t)conform_sum(r->floor).n, "n_differ",
                  (json_int_t)conform_sum(r->floor).n_differ, "n_sampled",
                  (json_int_t)r->floor[CONFORM_SAMPLED].n, "n_sampled_differ",
                  (json_int_t)r->floor[CONFORM_SAMPLED].n_differ, "relations", relations,
                  "findings", findings, "n_findings_not_kept", (json_int_t)r->n_more,
                  "n_requests", (json_int_t)r->n_asked, "n_wrong", result->n_wrong,
                  "n_silent", result->n_silent, "n_hangs", result->n_hangs, "n_unchecked",
                  result->n_unchecked, "n_failed", (json_int_t)result->n_failed);
    rc = json_write_file(j, path);
    json_decref(j);
    return rc;
}

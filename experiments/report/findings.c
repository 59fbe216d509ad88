#include "experiments/report/findings.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text_number.h"
#include "experiments/record/head.h"
#include "experiments/report/claim_rule.h"
#include "experiments/report/page.h"

#define FINDINGS_BYTES ((size_t)1 << 20)

/* --- the template */

/* A number in a sentence: "{100*share %}". */
struct slot {
    struct claim_operand operand;
    char unit[32];
};

/* The slot whose braces have text[0..n) between them; false: it is not one. */
static bool read_slot(struct slot *out, const char *text, size_t n)
{
    const char *blank = memchr(text, ' ', n);
    const size_t n_word = blank ? (size_t)(blank - text) : n,
                 n_unit = blank ? n - n_word - 1 : 0;
    char word[CLAIM_WORD_MAX];

    if (n_word >= sizeof(word) || n_unit >= sizeof(out->unit) || (blank && !n_unit))
        return false;
    snprintf(word, sizeof(word), "%.*s", (int)n_word, text);
    snprintf(out->unit, sizeof(out->unit), "%.*s", (int)n_unit, blank ? blank + 1 : "");
    return claim_operand_read(word, &out->operand) && out->operand.name[0];
}

/* The next number of *at, which moves behind it: 1, with `out` and how many bytes of text stand
 * before it; 0: there is none, and *before are left; -1: what is in braces is not a number. */
static int next_slot(const char **at, struct slot *out, size_t *before)
{
    const char *begin = *at, *end;

    *before = strcspn(begin, "{}");
    if (!begin[*before])
        return 0;
    end = strchr(begin + *before, '}');
    if (begin[*before] == '}' || !end ||
        !read_slot(out, begin + *before + 1, (size_t)(end - begin) - *before - 1))
        return -1;
    *at = end + 1;
    return 1;
}

/* --- the list */

/* Every number is in braces, so that none is typed that should come from the record. */
static int check_text(const struct finding *f, const char *where)
{
    const char *at = f->text;
    int n_slots = 0, found;
    struct slot slot;
    size_t before;

    while ((found = next_slot(&at, &slot, &before)) == 1)
        n_slots++;
    if (found < 0 || n_slots == 0)
        return err_set(ERR_FORMAT, "%s: text: expected {a headline}, found \"%.60s\"",
                       where, at);
    return OK;
}

static int read_finding(struct finding *f, const json_t *obj, const char *path, size_t i)
{
    static const char *const keys[] = {"paper", "experiment", "text",
                                       "holds", "tolerance",  NULL};
    char where[256], rule[300];

    snprintf(where, sizeof(where), "%s: finding %zu", path, i);
    TRY(json_get_str(obj, "paper", &f->paper, where));
    TRY(json_get_str(obj, "experiment", &f->experiment, where));
    TRY(json_get_str(obj, "text", &f->text, where));
    TRY(json_get_str(obj, "holds", &f->holds, where));
    TRY(json_opt_f64(obj, "tolerance", &f->tolerance, where));
    TRY(json_check_keys(obj, keys, where));
    if (!(f->tolerance >= 0 && f->tolerance < 1))
        return err_set(ERR_FORMAT, "%s: tolerance: expected 0 to 1, found %g", where,
                       f->tolerance);
    snprintf(rule, sizeof(rule), "%s: holds", where);
    TRY(claim_rule_check(f->holds, rule));
    return check_text(f, where);
}

int findings_read(struct findings *out, const char *path)
{
    static const char *const top[] = {"about", "findings", NULL};
    const json_t *list = NULL;

    *out = (struct findings){0};
    TRY(json_read_file(&out->root, path, FINDINGS_BYTES));
    TRY(json_check_keys(out->root, top, path));
    TRY(json_get_arr(out->root, "findings", &list, path));
    out->n = json_array_size(list);
    out->v = mem_new(MEM_HARNESS, out->n + 1, sizeof(*out->v));
    for (size_t i = 0; i < out->n; i++)
        TRY(read_finding(&out->v[i], json_array_get(list, i), path, i));
    return OK;
}

void findings_fini(struct findings *f)
{
    mem_free(f->v);
    json_decref(f->root);
    *f = (struct findings){0};
}

/* --- the sentence */

/* "90 % [85.1 to 93.4]" */
static void put_number(struct text *out, const struct slot *slot, struct claim_range x)
{
    char at[TEXT_NUMBER_BYTES], lo[TEXT_NUMBER_BYTES], hi[TEXT_NUMBER_BYTES];

    if (isnan(x.at) && record_bound_text(x.lo, x.hi, at)) {
        report_put(out, TEXT(at), TEXT(slot->unit[0] ? " " : ""), TEXT(slot->unit));
        return;
    }
    text_number(at, x.at, 3);
    text_number(lo, x.lo, 3);
    text_number(hi, x.hi, 3);
    report_put(out, TEXT(at), TEXT(slot->unit[0] ? " " : ""), TEXT(slot->unit));
    if (strcmp(lo, hi) != 0)
        report_put(out, MD(" \\["), TEXT(lo), MD(" to "), TEXT(hi), MD("\\]"));
}

static enum claim_truth put_sentence(struct text *out, const char *text,
                                     const json_t *headline, struct text *why)
{
    const char *at = text;
    enum claim_truth known;
    struct claim_range x;
    struct slot slot;
    size_t before;

    while (next_slot(&at, &slot, &before) == 1) {
        report_put(out, TEXT_N(text, before));
        text = at;
        known = claim_operand_value(&slot.operand, headline, &x, why);
        if (known != CLAIM_HOLDS)
            return known;
        put_number(out, &slot, x);
    }
    report_put(out, TEXT(text));
    return CLAIM_HOLDS;
}

enum finding_state finding_put(struct text *out, const struct finding *f,
                               const json_t *head)
{
    const json_t *headline = json_object_get(head, "headline");
    struct text sentence = {0}, why = {0};
    enum claim_truth truth;

    if (!head)
        return FINDING_NO_RECORD;
    truth = claim_rule_holds(f->holds, headline, f->tolerance, &why);
    if (truth == CLAIM_HOLDS)
        truth = put_sentence(&sentence, f->text, headline, &why);
    if (truth == CLAIM_HOLDS)
        report_put_text(out, &sentence);
    text_fini(&sentence);
    text_fini(&why);
    return truth == CLAIM_HOLDS                              ? FINDING_SHOWN
           : truth == CLAIM_UNKNOWN || truth == CLAIM_ABSENT ? FINDING_NO_NUMBER
                                                             : FINDING_NOT_SO;
}

void finding_evidence(const struct finding *f, const json_t *head, char out[96])
{
    const json_t *headline = json_object_get(head, "headline");
    const char *at = f->text, *kind,
               *record = json_str_at(json_object_get(head, "run"), "evidence", "unknown");
    json_t *kinds = json_object(), *v;
    struct slot slot;
    size_t n = 0, before;

    out[0] = '\0';
    while (next_slot(&at, &slot, &before) == 1) {
        char list[96], *rest = list, *word;

        snprintf(list, sizeof(list), "%s",
                 json_str_at(json_object_get(headline, slot.operand.name), "evidence",
                             record));
        while ((word = strsep(&rest, ", ")) != NULL)
            if (*word)
                json_object_set_new(kinds, word, json_true());
    }
    json_object_foreach(kinds, kind, v) if (n < 96) n +=
        (size_t)snprintf(out + n, 96 - n, "%s%s", n ? ", " : "", kind);
    json_decref(kinds);
}

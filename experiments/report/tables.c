#include "experiments/report/tables.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/name.h"
#include "experiments/report/report.h"

#define BEGIN          "<!-- testbed report:"
#define BEGIN_END      "-->"
#define END            "<!-- end of testbed report -->"
#define DOCUMENT_BYTES ((size_t)16 << 20)
#define WORD_MAX       512

/* --- one experiment */

static bool matches(const char *name, const char *wanted, size_t n)
{
    const bool prefix = n > 0 && wanted[n - 1] == '*';

    for (n -= prefix; n > 0; n--, name++, wanted++)
        if (*name != (*wanted == '~' ? ' ' : *wanted))
            return false;
    return prefix || *name == '\0';
}

/* A row: its title, and what `put` makes of each host's record, or of that headline in it. */
static void put_row(struct text *out, const struct report *r,
                    const struct report_experiment *e, const char *headline,
                    void (*put)(struct text *, const json_t *))
{
    const json_t *host;
    size_t h;

    json_array_foreach(r->hosts, h, host)
    {
        const json_t *head = report_record_on(host, e);

        if (!head)
            continue;
        text_puts(out, " | ");
        put(out, headline ? json_object_get(json_object_get(head, "headline"), headline)
                          : head);
    }
    text_puts(out, " |\n");
}

/* The headlines that this part of a word means: "ttft_p50", "geomean_*". */
static void put_wanted(struct text *out, const struct report *r,
                       const struct report_experiment *e, const char *wanted, size_t n)
{
    json_t *names = report_headline_names(r, e), *v;
    const char *name, *unit;
    char word[WORD_MAX];
    bool any = false;

    json_object_foreach(names, name, v) if (matches(name, wanted, n))
    {
        unit = json_string_value(v);
        report_put(out, MD("| "), CODE(name), TEXT(*unit ? ", " : ""), TEXT(unit));
        put_row(out, r, e, name, report_put_number);
        any = true;
    }
    json_decref(names);
    if (!any) {
        snprintf(word, sizeof(word), "%.*s", (int)n, wanted);
        report_put(out, MD("| "), CODE(word));
        put_row(out, r, e, word, report_put_number);
    }
}

static void put_evidence(struct text *out, const json_t *head)
{
    report_put(out, TEXT(report_evidence(head)));
}

static void put_noise(struct text *out, const json_t *head)
{
    if (json_object_size(json_object_get(head, "warnings")) == 0)
        text_puts(out, "none");
    report_put_warnings(out, head);
}

/* `wanted`: "a,b*", NULL: all. */
static void put_table(struct text *out, const struct report *r,
                      const struct report_experiment *e, const char *wanted)
{
    struct text title = {0};

    report_put(&title, CODE(e->stem), TEXT(e->job ? ": " : ""),
               TEXT(e->job ? e->job->head.about : ""));
    report_put_wrapped(out, &title, "");
    text_puts(out, "\n");
    text_fini(&title);
    report_put_table_head(out, r, e, "| |", "");
    for (const char *at = wanted ? wanted : "*"; *at;) {
        const size_t n = strcspn(at, ",");

        put_wanted(out, r, e, at, n);
        at += n + (at[n] == ',');
    }
    text_puts(out, "| commit, date");
    put_row(out, r, e, NULL, report_put_origin);
    text_puts(out, "| evidence");
    put_row(out, r, e, NULL, put_evidence);
    text_puts(out, "| warnings");
    put_row(out, r, e, NULL, put_noise);
    text_puts(out, "\n");
}

/* --- a block */

static const struct report_experiment *find(const struct report *r, const char *stem,
                                            const char *where, int line)
{
    const struct report_experiment *e = report_find(r, stem);
    const char **words;

    if (e)
        return e;
    words = mem_new(MEM_HARNESS, r->n + 1, sizeof(*words));
    for (size_t i = 0; i < r->n; i++)
        words[i] = r->v[i].stem;
    name_unknown(ERR_NOTFOUND, stem, words, "%s: line %d: no experiment \"%s\"", where,
                 line, stem);
    mem_free(words);
    return NULL;
}

/* The tables of the words text[0..n) of a begin line; nothing where no experiment has a
 * record. */
static int put_block(struct text *out, const char *text, size_t n, const struct report *r,
                     const char *where, int line)
{
    static const char blanks[] = " \t\r\n";
    char *words = mem_strndup(MEM_HARNESS, text, n), *at = NULL, *wanted;
    int n_words = 0, n_records = 0, rc = OK;

    for (char *word = strtok_r(words, blanks, &at); word && rc == OK;
         word = strtok_r(NULL, blanks, &at)) {
        const struct report_experiment *e;

        wanted = strchr(word, ':');
        if (wanted)
            *wanted++ = '\0';
        e = find(r, word, where, line);
        rc = e ? OK : ERR_NOTFOUND;
        n_words++;
        if (e && report_record(r, e)) {
            put_table(out, r, e, wanted);
            n_records++;
        } else if (e) {
            report_put(out, CODE(e->stem), MD(": no record; run: "));
            report_put_command(out, e);
            text_puts(out, "\n\n");
        }
    }
    mem_free(words);
    if (rc == OK && n_words == 0)
        rc = err_set(ERR_FORMAT, "%s: line %d: expected experiments after \"%s\"", where,
                     line, BEGIN);
    if (n_records == 0)
        out->n = 0;
    return rc != OK ? rc : out->rc;
}

/* --- the document */

/* Is the line text[0..n) `mark`, up to blanks at its end? */
static bool is_end(const char *text, size_t n)
{
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    return n == strlen(END) && memcmp(text, END, n) == 0;
}

/* Is it the beginning of a block? *words[0..*n_words) are those of the block. */
static bool is_begin(const char *text, size_t n, const char **words, size_t *n_words)
{
    const size_t n_begin = strlen(BEGIN), n_end = strlen(BEGIN_END);

    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    if (n < n_begin + n_end || memcmp(text, BEGIN, n_begin) != 0 ||
        memcmp(text + n - n_end, BEGIN_END, n_end) != 0)
        return false;
    *words = text + n_begin;
    *n_words = n - n_begin - n_end;
    return true;
}

/* Where a block is that has begun. */
struct block {
    const char *begin, *words; /* its first line; NULL: no block is open */
    size_t n_words;
    int line;
};

/* Append the block that ends before text[0]. */
static int close_block(struct text *out, const struct block *b, const char *body,
                       size_t n_body, const struct report *r, const char *where,
                       int *n_kept)
{
    struct text t = {0};
    int rc = put_block(&t, b->words, b->n_words, r, where, b->line);

    if (rc == OK && t.n == 0) {
        text_put(out, body, n_body);
        ++*n_kept;
    } else if (rc == OK) {
        text_puts(out, "\n");
        text_put(out, t.p, t.n);
    }
    text_fini(&t);
    return rc;
}

int report_tables_text(struct text *out, const char *text, size_t n,
                       const struct report *r, const char *where, int *n_kept)
{
    struct block b = {0};
    const char *body = NULL, *words;
    int n_blocks = 0, line = 1;
    size_t n_words;

    *n_kept = 0;
    for (const char *at = text, *end = text + n; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t len = newline ? (size_t)(newline - at) + 1 : (size_t)(end - at);

        if (is_begin(at, len, &words, &n_words)) {
            if (b.begin)
                return err_set(ERR_FORMAT,
                               "%s: line %d: expected \"%s\" for the block of line %d, "
                               "found another block",
                               where, line, END, b.line);
            b = (struct block){at, words, n_words, line};
            text_put(out, at, len);
            body = at + len;
            n_blocks++;
        } else if (is_end(at, len)) {
            if (!b.begin)
                return err_set(ERR_FORMAT,
                               "%s: line %d: \"%s\" without the line that begins a block",
                               where, line, END);
            TRY(close_block(out, &b, body, (size_t)(at - body), r, where, n_kept));
            b.begin = NULL;
            text_put(out, at, len);
        } else if (!b.begin) {
            text_put(out, at, len);
        }
        at += len;
    }
    if (b.begin)
        return err_set(ERR_FORMAT, "%s: line %d: the block is not closed by \"%s\"",
                       where, b.line, END);
    if (n_blocks == 0)
        return err_set(ERR_FORMAT,
                       "%s: expected a line \"%s EXPERIMENT... %s\" where tables are to "
                       "stand, found none",
                       where, BEGIN, BEGIN_END);
    return out->rc;
}

int report_tables_save(const char *path, const struct report *r, int *n_kept)
{
    struct text out = {0};
    char *text = NULL;
    size_t n;
    int rc = file_check_target(path, NULL);

    if (rc == OK)
        rc = file_read(&text, &n, path, DOCUMENT_BYTES);
    if (rc == OK)
        rc = report_tables_text(&out, text, n, r, path, n_kept);
    if (rc == OK && (out.n != n || memcmp(out.p, text, n) != 0))
        rc = file_write(path, out.p, out.n);
    text_fini(&out);
    mem_free(text);
    return rc;
}

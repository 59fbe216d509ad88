/* Several kinds of machines side by side: tables, and a small drawing of each experiment. */
#include "experiments/report/report.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text_number.h"

/* Numbers of one experiment that are drawn, and that README.md lists; more make neither clearer. */
#define ROWS_MAX 24

int report_n_compared(const struct report *r)
{
    int n = 0;

    for (size_t i = 0; i < r->n; i++)
        n += report_n_hosts(r, &r->v[i]) > 1;
    return n;
}

/* --- the drawing */

/* Pixels: names are left of 0 on the axis, the axis is between LEFT and RIGHT. */
enum { WIDTH = 760, LEFT = 300, RIGHT = 640, LINE = 15, GAP = 7, NAME_CHARS = 42 };

static const char *color_of(int k)
{
    static const char *const colors[] = {"#0072b2", "#d55e00", "#009e73",
                                         "#cc79a7", "#e69f00", "#56b4e9"};

    return colors[k % (int)(sizeof(colors) / sizeof(colors[0]))];
}

static const json_t *number_on(const json_t *host, const struct report_experiment *e,
                               const char *name)
{
    return json_object_get(json_object_get(report_record_on(host, e), "headline"), name);
}

/* Its interval; the value alone where it has none, NaN where it is missing. */
static void get_interval(const json_t *number, double *at, double *lo, double *hi)
{
    const double a = json_f64_at(number, "lo"), b = json_f64_at(number, "hi");

    *at = json_f64_at(number, "value");
    *lo = isfinite(a) ? fmin(a, *at) : *at;
    *hi = isfinite(b) ? fmax(b, *at) : *at;
}

/* The axis of a row: from the least to the largest of all machines, with 0. */
static void get_axis(const struct report *r, const struct report_experiment *e,
                     const char *name, double *from, double *to)
{
    const json_t *host;
    double at, lo, hi;
    size_t h;

    *from = *to = 0;
    json_array_foreach(r->hosts, h, host)
    {
        get_interval(number_on(host, e, name), &at, &lo, &hi);
        *from = fmin(*from, lo); /* of NaN and a number, the number */
        *to = fmax(*to, hi);
    }
}

static double x_of(double v, double from, double to)
{
    return LEFT + (RIGHT - LEFT) * (to > from ? (v - from) / (to - from) : 0);
}

static void put_mark(struct text *out, const json_t *number, int k, int y, double from,
                     double to)
{
    double at, lo, hi;

    get_interval(number, &at, &lo, &hi);
    if (!isfinite(at)) {
        text_printf(out, "<text x=\"%d\" y=\"%d\" fill=\"%s\">n/a</text>\n", LEFT + 6,
                    y + 4, color_of(k));
        return;
    }
    text_printf(out,
                "<path d=\"M%.1f %dH%.1f\" stroke=\"%s\" stroke-width=\"2\"/>"
                "<circle cx=\"%.1f\" cy=\"%d\" r=\"4\" fill=\"%s\"/>",
                x_of(lo, from, to), y, x_of(hi, from, to), color_of(k),
                x_of(at, from, to), y, color_of(k));
    text_printf(out, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", RIGHT + 14, y + 4,
                color_of(k), TEXT_NUMBER(at, 4));
}

/* One number: its name, and a line for each machine. Returns where the next one begins. */
static int put_row(struct text *out, const struct report *r,
                   const struct report_experiment *e, const char *name, const char *unit,
                   int y)
{
    const int top = y;
    double from, to, zero;
    const json_t *host;
    char shown[160];
    size_t h;
    int k = 0;

    snprintf(shown, sizeof(shown), "%.*s%s%s%.20s", NAME_CHARS, name,
             strlen(name) > NAME_CHARS ? "..." : "", *unit ? ", " : "", unit);
    get_axis(r, e, name, &from, &to);
    text_printf(out, "<text x=\"8\" y=\"%d\">", top + LINE / 2 + 4);
    report_put_xml(out, shown);
    text_puts(out, "</text>\n");
    json_array_foreach(r->hosts, h, host) if (report_record_on(host, e))
    {
        put_mark(out, number_on(host, e, name), k++, y + LINE / 2, from, to);
        y += LINE;
    }
    zero = x_of(0, from, to);
    text_printf(out, "<path d=\"M%.1f %dV%d\" stroke=\"#999\"/>\n", zero, top, y);
    return y + GAP;
}

static int put_legend(struct text *out, const struct report *r,
                      const struct report_experiment *e)
{
    const json_t *host;
    int y = LINE, k = 0;
    size_t h;

    json_array_foreach(r->hosts, h, host) if (report_record_on(host, e))
    {
        text_printf(out, "<circle cx=\"14\" cy=\"%d\" r=\"4\" fill=\"%s\"/>", y,
                    color_of(k));
        text_printf(out, "<text x=\"26\" y=\"%d\" fill=\"%s\">", y + 4, color_of(k));
        report_put_xml(out, report_label(host));
        text_puts(out, "</text>\n");
        y += LINE + 2;
        k++;
    }
    return y + GAP;
}

static void put_drawing(struct text *out, const struct report *r,
                        const struct report_experiment *e)
{
    json_t *names = report_headline_names(r, e), *unit;
    struct text body = {0};
    int y = put_legend(&body, r, e), n = 0;
    const char *name;

    json_object_foreach(names, name, unit) if (n < ROWS_MAX)
    {
        y = put_row(&body, r, e, name, json_string_value(unit), y);
        n++;
    }
    text_printf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
                "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                WIDTH, y, WIDTH, y);
    report_put_text(out, &body);
    text_puts(out, "</svg>\n");
    text_fini(&body);
    json_decref(names);
}

int report_draw_side_by_side(const struct report *r, const char *out)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < r->n; i++) {
        struct text svg = {0};
        int rc;

        if (report_n_hosts(r, &r->v[i]) < 2)
            continue;
        if (snprintf(path, sizeof(path), "%s/figures/%s-machines.svg", out,
                     r->v[i].stem) >= (int)sizeof(path))
            return err_set(ERR_LIMIT, "%s: the path is too long", out);
        put_drawing(&svg, r, &r->v[i]);
        rc = svg.rc == OK ? file_write(path, svg.p, svg.n) : svg.rc;
        text_fini(&svg);
        TRY(rc);
    }
    return OK;
}

/* --- on the page */

/* "- `decode`, tok/s: 12.1 (11 to 13); 24 (23 to 25)", in the order of the machines. */
static void put_readme_row(struct text *out, const struct report *r,
                           const struct report_experiment *e, const char *name,
                           const char *unit)
{
    const char *before = ": ";
    struct text line = {0};
    const json_t *host;
    size_t h;

    report_put(&line, MD("- "), CODE(name), TEXT(*unit ? ", " : ""), TEXT(unit));
    json_array_foreach(r->hosts, h, host) if (report_record_on(host, e))
    {
        text_puts(&line, before);
        report_put_number(&line, number_on(host, e, name));
        before = "; ";
    }
    report_put_wrapped(out, &line, "  ");
    text_fini(&line);
}

static void put_readme_rows(struct text *out, const struct report *r,
                            const struct report_experiment *e)
{
    json_t *names = report_headline_names(r, e), *unit;
    const size_t n_names = json_object_size(names);
    struct text line = {0};
    const char *name, *before = "On ";
    const json_t *host;
    size_t h, n = 0;

    json_array_foreach(r->hosts, h, host) if (report_record_on(host, e))
    {
        report_put(&line, TEXT(before), TEXT(report_label(host)));
        before = "; ";
    }
    text_puts(&line, ", in this order:");
    report_put_wrapped(out, &line, "");
    text_puts(out, "\n");
    json_object_foreach(names, name, unit) if (n < ROWS_MAX)
    {
        put_readme_row(out, r, e, name, json_string_value(unit));
        n++;
    }
    if (n_names > n)
        report_put(out, MD("- "), INT(n_names - n),
                   MD(" more are on the page that `make report` writes\n"));
    text_puts(out, "\n");
    text_fini(&line);
    json_decref(names);
}

static void put_compared(struct text *out, const struct report *r,
                         const struct report_experiment *e, bool readme)
{
    json_t *names = report_headline_names(r, e);
    struct text line = {0};
    char path[300];

    text_puts(&line, "Experiment ");
    report_put_link(&line, e->stem, readme);
    report_put(&line, MD(": "), TEXT(e->job ? e->job->head.about : ""));
    report_put_wrapped(out, &line, "");
    text_puts(out, "\n");
    if (readme) {
        put_readme_rows(out, r, e);
    } else {
        snprintf(path, sizeof(path), "figures/%s-machines.svg", e->stem);
        report_put(out, MD("!["), TEXT(e->stem), MD(" on each machine]("), URL(path),
                   MD(")\n\n"));
        if (json_object_size(names) > ROWS_MAX)
            report_put(out, MD("Drawn are "), INT(ROWS_MAX), MD(" of its numbers.\n\n"));
        report_put_numbers(out, r, e);
    }
    text_fini(&line);
    json_decref(names);
}

void report_put_side_by_side(struct text *out, const struct report *r, bool readme)
{
    if (!report_n_compared(r))
        return;
    report_put(out,
               MD("## Machines side by side\n\nExperiments with records of more than one "
                  "kind of machine."),
               TEXT(readme
                        ? ""
                        : " Each number has an axis of its own, which has 0 in it, and "
                          "a line is its 95 % interval."),
               MD("\n\n"));
    for (size_t i = 0; i < r->n; i++)
        if (report_n_hosts(r, &r->v[i]) > 1)
            put_compared(out, r, &r->v[i], readme);
}

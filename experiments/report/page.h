/* experiments/report/page.h - Markdown that is put together from records, and the one HTML file
 * that is made of it.
 *
 * Names and warnings of a foreign record may hold anything; nothing of them gets a meaning in
 * the page.   Threads: one owner. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include "base/err.h"
#include "base/text.h"

/* What a word is to the reader. In HTML each has its colour. */
#define REPORT_GOOD "**%s**"
#define REPORT_FAIR "**_%s_**"
#define REPORT_BAD  "***%s***"
#define REPORT_DIM  "_%s_"

/* Append `fmt`, which is Markdown and stands as it is, with printf's %s, %d, %zu, %lld and %g.
 * What takes the place of a %s becomes one line and is escaped as its place needs: as text;
 * between ` and ` as code; behind "](" as a URL; behind "](#" as the id of a heading. A failure is
 * in out->rc. */
void report_put(struct text *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Append what was put into `from`, and its failure. */
void report_put_text(struct text *out, const struct text *from);
/* Append the words of `from` in lines of at most 100 columns, but for words that are longer. Lines
 * after the first begin with `indent`. */
void report_put_wrapped(struct text *out, const struct text *from, const char *indent);
/* Append a text of a foreign record as XML has it; the id of a heading with this text. */
void report_put_xml(struct text *out, const char *s);
void report_put_id(struct text *out, const char *s);
/* Append the path of `to` from the folder `from`; both exist. ERR_NOTFOUND: one of them does
 * not. */
MUST int report_put_relative(struct text *out, const char *from, const char *to);

/* Append a page of Markdown as one HTML file without scripts that needs no other: the SVG
 * figures that it shows from the folder `dir` are in it. A figure that cannot be read stays a
 * link. */
void report_html(struct text *out, const struct text *markdown, const char *title,
                 const char *dir);

#endif

/* experiments/report/page.h - a page that is written once and comes out as HTML or as
 * Markdown.
 *
 * The HTML is one file without scripts that needs no other: figures are in it as data. Every
 * text is escaped, since names and warnings of a foreign record may hold anything.
 * Threads: one owner. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/text.h"

enum report_format { REPORT_HTML, REPORT_MARKDOWN };

/* Blocks that are opened and closed. HEAD is the first row of a table, with titles in its
 * cells. */
enum report_block {
    REPORT_PARAGRAPH,
    REPORT_LIST,
    REPORT_ITEM,
    REPORT_TABLE,
    REPORT_HEAD,
    REPORT_ROW,
    REPORT_CELL,
    REPORT_N_BLOCKS
};

/* What a word is to the reader: HTML colours it, Markdown prints it in bold. */
enum report_mark { REPORT_GOOD, REPORT_FAIR, REPORT_BAD, REPORT_DIM };

struct report_page {
    struct text text; /* text_fini(); its rc tells whether a put has failed */
    enum report_format format;
    bool in_head;
    int n_columns;
};

void report_open(struct report_page *p, enum report_block b);
void report_close(struct report_page *p, enum report_block b);
void report_text(struct report_page *p, const char *s);
void report_textf(struct report_page *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void report_code(struct report_page *p, const char *s);
void report_mark(struct report_page *p, enum report_mark m, const char *s);
/* `href`: a relative path, or "#" and the text of a heading. */
void report_link(struct report_page *p, const char *href, const char *s);
void report_break(struct report_page *p); /* a new line in a paragraph or a cell */
void report_heading(struct report_page *p, int level, const char *s);
/* A cell with this text only. */
void report_cell(struct report_page *p, const char *s);
/* The rows between are folded up until the reader opens them, where the format can. */
void report_fold(struct report_page *p, const char *summary);
void report_unfold(struct report_page *p);

/* The figure in the file `dir`/`path`. HTML holds it as data. ERR_NOTFOUND and others: it
 * cannot be read. */
MUST int report_image(struct report_page *p, const char *dir, const char *path,
                      const char *alt);

/* The head of an HTML page with its style, and the end. Markdown has neither. */
void report_begin(struct report_page *p, const char *title);
void report_end(struct report_page *p);

/* Append `s` as text of this format, in one line: what has a meaning there is escaped, and
 * control characters are shown as utf8_show() does. */
void report_escape(struct text *out, enum report_format f, const char *s);
/* Append the path as a URL. */
void report_put_url(struct text *out, const char *path);
/* Append the path of `to` from the folder `from`; both exist. ERR_NOTFOUND, ERR_IO: one of
 * them does not. */
MUST int report_put_relative(struct text *out, const char *from, const char *to);

#endif

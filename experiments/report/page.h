/* experiments/report/page.h - Markdown that is put together from records, and the one HTML file
 * that is made of it.
 *
 * Names and warnings of a foreign record may hold anything; nothing of them gets a meaning in
 * the page.   Threads: one owner. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text.h"

/* The weight of a word for the reader. In HTML each has its colour. */
enum report_mark { REPORT_GOOD, REPORT_FAIR, REPORT_BAD, REPORT_DIM };

enum report_kind {
    REPORT_END,
    REPORT_MARKDOWN, /* stands as it is */
    REPORT_TEXT,     /* one line, escaped */
    REPORT_CODE,     /* the same as code */
    REPORT_IN_CODE,  /* the same between two ` that are there */
    REPORT_URL,      /* where a link leads */
    REPORT_ID,       /* of the heading with this text */
    REPORT_LINK,     /* text, and where it leads */
    REPORT_ANCHOR,   /* text, and the heading it leads to */
    REPORT_MARKED,   /* text with a mark */
    REPORT_INT,
    REPORT_NUMBER,
};

struct report_piece {
    enum report_kind kind;
    const char *s;
    size_t n;       /* at most this many bytes of it */
    const char *to; /* of a link */
    enum report_mark mark;
    long long integer; /* REPORT_NUMBER: significant digits */
    double number;
};
#define REPORT_PIECE(kind_, s_, n_, ...)                                                 \
    ((struct report_piece){.kind = REPORT_##kind_, .s = (s_), .n = (n_), ##__VA_ARGS__})
#define MD(s)              REPORT_PIECE(MARKDOWN, s, SIZE_MAX)
#define TEXT(s)            REPORT_PIECE(TEXT, s, SIZE_MAX)
#define TEXT_N(s, n)       REPORT_PIECE(TEXT, s, n)
#define CODE(s)            REPORT_PIECE(CODE, s, SIZE_MAX)
#define IN_CODE(s)         REPORT_PIECE(IN_CODE, s, SIZE_MAX)
#define URL(s)             REPORT_PIECE(URL, s, SIZE_MAX)
#define URL_N(s, n)        REPORT_PIECE(URL, s, n)
#define ID(s)              REPORT_PIECE(ID, s, SIZE_MAX)
#define LINK(s, url)       REPORT_PIECE(LINK, s, SIZE_MAX, .to = (url))
#define ANCHOR(s, heading) REPORT_PIECE(ANCHOR, s, SIZE_MAX, .to = (heading))
#define MARK(how, s)       REPORT_PIECE(MARKED, s, SIZE_MAX, .mark = (how))
#define INT(v)             REPORT_PIECE(INT, NULL, 0, .integer = (long long)(v))
#define NUM(digits, v)     REPORT_PIECE(NUMBER, NULL, 0, .integer = (digits), .number = (v))

/* Append these pieces in order: report_put(out, MD("- "), TEXT(name), MD("\n")). A failure is in
 * out->rc. */
#define report_put(out, ...)                                                             \
    report_put_pieces(out, (const struct report_piece[]){__VA_ARGS__, {REPORT_END}})
void report_put_pieces(struct text *out, const struct report_piece *pieces);
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

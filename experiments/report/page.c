#include "experiments/report/page.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmark-gfm.h>
#include <cmark-gfm-core-extensions.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text_number.h"

#define FIGURE_BYTES ((size_t)64 << 20)
#define COLUMNS      100

/* --- pieces */

void report_put_xml(struct text *out, const char *s)
{
    text_put_shown(out, TEXT_XML, s, strlen(s));
}

static void put_url(struct text *out, const char *s, size_t n)
{
    for (; n > 0; s++, n--)
        if (isascii(*s) && (isalnum((unsigned char)*s) || strchr("/._-~", *s)))
            text_put(out, s, 1);
        else
            text_printf(out, "%%%02X", (unsigned char)*s);
}

/* By GitHub's rule. */
static void put_id(struct text *out, const char *s, size_t n)
{
    for (; n > 0; s++, n--) {
        const char c = (char)tolower((unsigned char)*s);

        if (c == ' ')
            text_puts(out, "-");
        else if (isascii(c) && (isalnum((unsigned char)c) || c == '_' || c == '-'))
            text_put(out, &c, 1);
    }
}

void report_put_id(struct text *out, const char *s)
{
    put_id(out, s, strlen(s));
}

static void put_code(struct text *out, const char *s, size_t n)
{
    text_puts(out, "`");
    text_put_shown(out, TEXT_CODE, s, n);
    text_puts(out, "`");
}

static void put_marked(struct text *out, enum report_mark mark, const char *s, size_t n)
{
    static const char *const around[][2] = {[REPORT_GOOD] = {"**", "**"},
                                            [REPORT_FAIR] = {"**_", "_**"},
                                            [REPORT_BAD] = {"***", "***"},
                                            [REPORT_DIM] = {"_", "_"}};

    text_puts(out, around[mark][0]);
    text_put_shown(out, TEXT_MARKDOWN, s, n);
    text_puts(out, around[mark][1]);
}

static void put_link(struct text *out, const struct report_piece *p, size_t n)
{
    text_puts(out, "[");
    text_put_shown(out, TEXT_MARKDOWN, p->s, n);
    text_puts(out, p->kind == REPORT_ANCHOR ? "](#" : "](");
    if (p->kind == REPORT_ANCHOR)
        put_id(out, p->to, strlen(p->to));
    else
        put_url(out, p->to, strlen(p->to));
    text_puts(out, ")");
}

void report_put_pieces(struct text *out, const struct report_piece *pieces)
{
    for (const struct report_piece *p = pieces; p->kind != REPORT_END; p++) {
        const size_t n = p->s ? strnlen(p->s, p->n) : 0;

        switch (p->kind) {
        case REPORT_END:
            break;
        case REPORT_MARKDOWN:
            text_put(out, p->s, n);
            break;
        case REPORT_TEXT:
            text_put_shown(out, TEXT_MARKDOWN, p->s, n);
            break;
        case REPORT_CODE:
            put_code(out, p->s, n);
            break;
        case REPORT_IN_CODE:
            text_put_shown(out, TEXT_CODE, p->s, n);
            break;
        case REPORT_URL:
            put_url(out, p->s, n);
            break;
        case REPORT_ID:
            put_id(out, p->s, n);
            break;
        case REPORT_LINK:
        case REPORT_ANCHOR:
            put_link(out, p, n);
            break;
        case REPORT_MARKED:
            put_marked(out, p->mark, p->s, n);
            break;
        case REPORT_INT:
            text_printf(out, "%lld", p->integer);
            break;
        case REPORT_NUMBER:
            text_puts(out, TEXT_NUMBER(p->number, (int)p->integer));
            break;
        }
    }
}

void report_put_text(struct text *out, const struct text *from)
{
    text_put(out, from->p, from->n);
    if (from->rc != OK)
        out->rc = from->rc;
}

void report_put_wrapped(struct text *out, const struct text *from, const char *indent)
{
    const char *at = from->p, *end = from->p + from->n;
    size_t column = 0;

    while (at < end) {
        const char *blank = memchr(at, ' ', (size_t)(end - at));
        const size_t n = (size_t)((blank ? blank : end) - at);
        const bool is_bullet = n == 1 && strchr("-+", *at); /* at the begin of a line */

        if (column > 0 && column + 1 + n > COLUMNS && !is_bullet) {
            text_puts(out, "\n");
            text_puts(out, indent);
            column = strlen(indent);
        } else if (column > 0) {
            text_puts(out, " ");
            column++;
        }
        text_put(out, at, n);
        column += n;
        at += n + (blank != NULL);
    }
    text_puts(out, "\n");
}

/* --- paths */

int report_put_relative(struct text *out, const char *from, const char *to)
{
    char a[PATH_MAX], b[PATH_MAX];
    size_t same = 0;

    if (!realpath(from, a))
        return err_set(ERR_NOTFOUND, "%s: cannot find: %m", from);
    if (!realpath(to, b))
        return err_set(ERR_NOTFOUND, "%s: cannot find: %m", to);
    for (size_t i = 0; a[i] == b[i] || (!a[i] && b[i] == '/'); i++) {
        if (b[i] == '/')
            same = i + 1;
        if (!a[i] || !b[i])
            break;
    }
    for (const char *p = strlen(a) > same ? a + same : ""; *p;) {
        text_puts(out, "../");
        p += strcspn(p, "/");
        p += *p == '/';
    }
    text_puts(out, b + same);
    return out->rc;
}

/* --- HTML */

static const char style[] =
    ":root{color-scheme:light dark;--text:#1c1c1c;--page:#fff;--line:#d5d5d5;"
    "--soft:#f2f2f2;--dim:#6e6e6e;--good:#00674a;--fair:#8a5a00;--bad:#b3261e;"
    "--link:#0b57d0}\n"
    "@media(prefers-color-scheme:dark){:root{--text:#e3e3e3;--page:#17191b;"
    "--line:#44484c;--soft:#25282b;--dim:#a3a3a3;--good:#5fcba3;--fair:#e8b455;"
    "--bad:#ff9489;--link:#8ab4f8}}\n"
    "body{font:15px/1.45 system-ui,sans-serif;color:var(--text);background:var(--page);"
    "max-width:1200px;margin:1.5em auto;padding:0 1.5em;overflow-wrap:break-word}\n"
    "h1{font-size:1.7em}h2{font-size:1.35em;margin-top:2em;border-bottom:1px solid "
    "var(--line)}h3{font-size:1.2em;margin-top:2em}h4{font-size:1em;margin-top:2.2em}\n"
    "a{color:var(--link)}ol li{max-width:52em;margin:.45em 0}summary{cursor:pointer}\n"
    "table{display:block;overflow-x:auto;border-collapse:collapse;margin:.6em 0;"
    "font-size:.93em}\n"
    "th,td{border:1px solid var(--line);padding:.3em .6em;text-align:left;"
    "vertical-align:top;overflow-wrap:break-word}\n"
    "th{background:var(--soft)}th:empty{display:none}\n"
    /* figures are drawn on white */
    "img{width:60em;max-width:100%;height:auto;background:#fff}\n"
    "code{font-size:.93em;background:var(--soft);padding:0 .2em;overflow-wrap:anywhere}\n"
    /* the marks of page.h */
    "em{font-style:normal;color:var(--dim)}strong{font-weight:600;color:var(--good)}"
    "em>strong{color:var(--bad)}strong>em{color:var(--fair)}\n"
    /* tables of two columns have sentences with long names; others are moved sideways */
    "td:nth-child(2):last-child{overflow-wrap:anywhere}\n"
    "@media(max-width:600px){body{padding:0 .8em}}\n"
    "@media print{details>*{display:block}}\n";

/* A link in the page leads to it. */
static void name_heading(cmark_node *heading)
{
    cmark_node *anchor = cmark_node_new(CMARK_NODE_HTML_INLINE);
    struct text t = {0};

    text_puts(&t, "<a id=\"");
    for (cmark_node *n = cmark_node_first_child(heading); n; n = cmark_node_next(n)) {
        const char *s = cmark_node_get_literal(n);

        put_id(&t, s ? s : "", s ? strlen(s) : 0);
    }
    text_put(&t, "\"></a>", sizeof("\"></a>"));
    if (t.rc == OK)
        cmark_node_set_literal(anchor, t.p);
    cmark_node_prepend_child(heading, anchor);
    text_fini(&t);
}

static void put_base64(struct text *out, const char *bytes, size_t n)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *s = (const unsigned char *)bytes;

    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const uint32_t v = (uint32_t)s[i] << 16 |
                           (left > 1 ? (uint32_t)s[i + 1] << 8 : 0) |
                           (left > 2 ? (uint32_t)s[i + 2] : 0);
        const char four[4] = {digits[v >> 18], digits[v >> 12 & 63],
                              left > 1 ? digits[v >> 6 & 63] : '=',
                              left > 2 ? digits[v & 63] : '='};

        text_put(out, four, 4);
    }
}

/* As an image, the figure is a document of its own: its ids and styles meet neither the page's
 * nor those of other figures, and no script in it would run. */
static void take_in_figure(cmark_node *image, const char *dir)
{
    struct text data = {0};
    char path[PATH_MAX], *bytes = NULL;
    size_t n;

    if (snprintf(path, sizeof(path), "%s/%s", dir, cmark_node_get_url(image)) >=
            (int)sizeof(path) ||
        file_read(&bytes, &n, path, FIGURE_BYTES) != OK) {
        err_clear(); /* the link stays */
        return;
    }
    text_puts(&data, "data:image/svg+xml;base64,");
    put_base64(&data, bytes, n);
    text_put(&data, "", 1);
    if (data.rc == OK)
        cmark_node_set_url(image, data.p);
    text_fini(&data);
    mem_free(bytes);
}

static cmark_node *parse(const struct text *markdown)
{
    cmark_parser *parser;
    cmark_node *page;

    cmark_gfm_core_extensions_ensure_registered();
    parser = cmark_parser_new(CMARK_OPT_DEFAULT);
    cmark_parser_attach_syntax_extension(parser, cmark_find_syntax_extension("table"));
    cmark_parser_feed(parser, markdown->p, markdown->n);
    page = cmark_parser_finish(parser);
    cmark_parser_free(parser);
    return page;
}

void report_html(struct text *out, const struct text *markdown, const char *title,
                 const char *dir)
{
    cmark_node *page = parse(markdown);
    cmark_iter *i = cmark_iter_new(page);
    cmark_event_type event;
    char *body;

    while ((event = cmark_iter_next(i)) != CMARK_EVENT_DONE) {
        cmark_node *n = cmark_iter_get_node(i);

        if (event == CMARK_EVENT_EXIT && cmark_node_get_type(n) == CMARK_NODE_HEADING)
            name_heading(n);
        else if (event == CMARK_EVENT_EXIT && cmark_node_get_type(n) == CMARK_NODE_IMAGE)
            take_in_figure(n, dir);
    }
    /* Breaks, folded tables and anchors are HTML, and written here; what is foreign has been
     * escaped. */
    body = cmark_render_html(page, CMARK_OPT_UNSAFE, NULL);
    text_puts(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                   "<meta name=\"viewport\" content=\"width=device-width,"
                   "initial-scale=1\">\n<title>");
    text_puts(out, title);
    text_puts(out, "</title>\n<style>\n");
    text_puts(out, style);
    text_puts(out, "</style></head>\n<body>\n");
    text_puts(out, body);
    text_puts(out, "</body></html>\n");
    free(body);
    cmark_iter_free(i);
    cmark_node_free(page);
}

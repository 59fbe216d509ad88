#include "experiments/report/page.h"

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"

#define FIGURE_BYTES ((size_t)64 << 20)

static const struct {
    const char *open, *close;
} blocks[2][REPORT_N_BLOCKS] = {
    [REPORT_HTML] = {[REPORT_PARAGRAPH] = {"<p>", "</p>\n"},
                     [REPORT_LIST] = {"<ul>\n", "</ul>\n"},
                     [REPORT_ITEM] = {"<li>", "</li>\n"},
                     [REPORT_TABLE] = {"<div class=\"wide\"><table>\n",
                                       "</table></div>\n"},
                     [REPORT_HEAD] = {"<tr>", "</tr>\n"},
                     [REPORT_ROW] = {"<tr>", "</tr>\n"},
                     [REPORT_CELL] = {"<td>", "</td>"}},
    [REPORT_MARKDOWN] = {[REPORT_PARAGRAPH] = {"", "\n\n"},
                         [REPORT_LIST] = {"", "\n"},
                         [REPORT_ITEM] = {"- ", "\n"},
                         [REPORT_TABLE] = {"", "\n"},
                         [REPORT_HEAD] = {"|", "\n|"},
                         [REPORT_ROW] = {"|", "\n"},
                         [REPORT_CELL] = {" ", " |"}},
};

/* --- escaping */

static void put_html(struct text *out, const char *c, int len, bool in_word)
{
    (void)in_word;
    switch (*c) {
    case '&':
        text_puts(out, "&amp;");
        break;
    case '<':
        text_puts(out, "&lt;");
        break;
    case '>':
        text_puts(out, "&gt;");
        break;
    case '"':
        text_puts(out, "&quot;");
        break;
    case '\'':
        text_puts(out, "&#39;");
        break;
    default:
        text_put(out, c, (size_t)len);
    }
}

static void put_markdown(struct text *out, const char *c, int len, bool in_word)
{
    if (strchr("&<>", *c)) {
        put_html(out, c, len, in_word);
        return;
    }
    if (strchr("\\`*_[]#|~$", *c) && !(*c == '_' && in_word))
        text_puts(out, "\\");
    text_put(out, c, (size_t)len);
}

/* A span of code in Markdown knows no escapes but that of a table's bar. */
static void put_markdown_code(struct text *out, const char *c, int len, bool in_word)
{
    (void)in_word;
    if (*c == '`')
        text_puts(out, "'");
    else if (*c == '|')
        text_puts(out, "\\|");
    else
        text_put(out, c, (size_t)len);
}

static void escape(struct text *out, void (*put)(struct text *, const char *, int, bool),
                   const char *s)
{
    const char *begin = s;

    for (size_t n = strlen(s); n > 0;) {
        const bool in_word =
            s > begin && isalnum((unsigned char)s[-1]) && isalnum((unsigned char)s[1]);
        char shown[UTF8_SHOWN_BYTES];
        int used, len = utf8_show_one(shown, s, n, &used);

        if (*s == '\n' || *s == '\t' || *s == '\r')
            text_puts(out, " ");
        else if (used == len)
            put(out, shown, len, in_word);
        else /* "\x1b" */
            for (int i = 0; i < len; i++)
                put(out, shown + i, 1, false);
        s += used;
        n -= (size_t)used;
    }
}

void report_escape(struct text *out, enum report_format f, const char *s)
{
    escape(out, f == REPORT_HTML ? put_html : put_markdown, s);
}

void report_put_url(struct text *out, const char *path)
{
    for (; *path; path++)
        if (strchr("/._-~", *path) || (*path >= '0' && *path <= '9') ||
            (*path >= 'a' && *path <= 'z') || (*path >= 'A' && *path <= 'Z'))
            text_put(out, path, 1);
        else
            text_printf(out, "%%%02X", (unsigned char)*path);
}

/* The id of a heading, by GitHub's rule for Markdown. */
static void put_id(struct text *out, const char *s)
{
    for (; *s; s++) {
        const char c = *s >= 'A' && *s <= 'Z' ? (char)(*s - 'A' + 'a') : *s;

        if (c == ' ')
            text_puts(out, "-");
        else if (c == '_' || c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'))
            text_put(out, &c, 1);
    }
}

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

/* --- blocks */

void report_open(struct report_page *p, enum report_block b)
{
    if (b == REPORT_HEAD) {
        p->in_head = true;
        p->n_columns = 0;
    }
    p->n_columns += p->in_head && b == REPORT_CELL;
    if (p->format == REPORT_HTML && p->in_head && b == REPORT_CELL)
        text_puts(&p->text, "<th>");
    else
        text_puts(&p->text, blocks[p->format][b].open);
}

void report_close(struct report_page *p, enum report_block b)
{
    if (p->format == REPORT_HTML && p->in_head && b == REPORT_CELL)
        text_puts(&p->text, "</th>");
    else
        text_puts(&p->text, blocks[p->format][b].close);
    if (b != REPORT_HEAD)
        return;
    p->in_head = false;
    for (int i = 0; i < p->n_columns && p->format == REPORT_MARKDOWN; i++)
        text_puts(&p->text, i + 1 < p->n_columns ? "---|" : "---|\n");
}

void report_text(struct report_page *p, const char *s)
{
    report_escape(&p->text, p->format, s);
}

void report_textf(struct report_page *p, const char *fmt, ...)
{
    char line[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    report_text(p, line);
}

void report_code(struct report_page *p, const char *s)
{
    const bool html = p->format == REPORT_HTML;

    text_puts(&p->text, html ? "<code>" : "`");
    escape(&p->text, html ? put_html : put_markdown_code, s);
    text_puts(&p->text, html ? "</code>" : "`");
}

void report_mark(struct report_page *p, enum report_mark m, const char *s)
{
    static const char *const names[] = {"good", "fair", "bad", "dim"};

    if (p->format == REPORT_HTML)
        text_printf(&p->text, "<span class=\"%s\">", names[m]);
    else if (m != REPORT_DIM)
        text_puts(&p->text, "**");
    report_text(p, s);
    if (p->format == REPORT_HTML)
        text_puts(&p->text, "</span>");
    else if (m != REPORT_DIM)
        text_puts(&p->text, "**");
}

void report_link(struct report_page *p, const char *href, const char *s)
{
    const bool html = p->format == REPORT_HTML;

    text_puts(&p->text, html ? "<a href=\"" : "[");
    if (!html) {
        report_text(p, s);
        text_puts(&p->text, "](");
    }
    if (*href == '#') {
        text_puts(&p->text, "#");
        put_id(&p->text, href + 1);
    } else {
        report_put_url(&p->text, href);
    }
    text_puts(&p->text, html ? "\">" : ")");
    if (html) {
        report_text(p, s);
        text_puts(&p->text, "</a>");
    }
}

void report_break(struct report_page *p)
{
    text_puts(&p->text, "<br>");
}

void report_heading(struct report_page *p, int level, const char *s)
{
    if (p->format == REPORT_HTML) {
        text_printf(&p->text, "<h%d id=\"", level);
        put_id(&p->text, s);
        text_puts(&p->text, "\">");
        report_text(p, s);
        text_printf(&p->text, "</h%d>\n", level);
    } else {
        text_printf(&p->text, "%.*s ", level, "######");
        report_text(p, s);
        text_puts(&p->text, "\n\n");
    }
}

void report_cell(struct report_page *p, const char *s)
{
    report_open(p, REPORT_CELL);
    report_text(p, s);
    report_close(p, REPORT_CELL);
}

void report_fold(struct report_page *p, const char *summary)
{
    if (p->format != REPORT_HTML)
        return;
    text_puts(&p->text, "<details><summary>");
    report_text(p, summary);
    text_puts(&p->text, "</summary>\n");
}

void report_unfold(struct report_page *p)
{
    if (p->format == REPORT_HTML)
        text_puts(&p->text, "</details>\n");
}

/* --- figures */

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
int report_image(struct report_page *p, const char *dir, const char *path,
                 const char *alt)
{
    char file[PATH_MAX], *bytes = NULL;
    size_t n = 0;
    int rc = OK;

    if (p->format == REPORT_MARKDOWN) {
        text_puts(&p->text, "![");
        report_text(p, alt);
        text_puts(&p->text, "](");
        report_put_url(&p->text, path);
        text_puts(&p->text, ")\n\n");
        return OK;
    }
    if (snprintf(file, sizeof(file), "%s/%s", dir, path) >= (int)sizeof(file))
        return err_set(ERR_LIMIT, "%s: the path is too long", path);
    rc = file_read(&bytes, &n, file, FIGURE_BYTES);
    if (rc == OK) {
        text_puts(&p->text, "<p><a href=\"");
        report_put_url(&p->text, path);
        text_puts(&p->text, "\"><img alt=\"");
        report_text(p, alt);
        text_puts(&p->text, "\" src=\"data:image/svg+xml;base64,");
        put_base64(&p->text, bytes, n);
        text_puts(&p->text, "\"></a></p>\n");
    }
    mem_free(bytes);
    return rc;
}

/* --- the page */

void report_begin(struct report_page *p, const char *title)
{
    static const char style[] =
        "body{font:15px/1.45 system-ui,sans-serif;color:#1c1c1c;max-width:1200px;"
        "margin:1.5em auto;padding:0 1.5em}\n"
        "h1{font-size:1.7em}h2{font-size:1.35em;margin-top:2em;border-bottom:1px solid "
        "#ccc}h3{margin-top:2.2em}\n"
        ".wide{overflow-x:auto}\n"
        "table{border-collapse:collapse;margin:.6em 0;font-size:.93em}\n"
        "th,td{border:1px solid #d5d5d5;padding:.3em .6em;text-align:left;"
        "vertical-align:top;overflow-wrap:break-word}\n"
        "th{background:#f2f2f2}\n"
        "img{width:60em;max-width:100%;height:auto}\n"
        "code{font-size:.93em;background:#f2f2f2;padding:0 .2em}\n"
        ".good{color:#00674a;font-weight:600}.fair{color:#8a5a00;font-weight:600}"
        ".bad{color:#b3261e;font-weight:600}.dim{color:#6e6e6e}\n"
        "@media print{details>*{display:block}}\n";

    if (p->format != REPORT_HTML)
        return;
    text_puts(&p->text, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta "
                        "charset=\"utf-8\">\n<meta name=\"viewport\" "
                        "content=\"width=device-width,initial-scale=1\">\n<title>");
    report_text(p, title);
    text_puts(&p->text, "</title>\n<style>\n");
    text_puts(&p->text, style);
    text_puts(&p->text, "</style></head>\n<body>\n");
}

void report_end(struct report_page *p)
{
    if (p->format == REPORT_HTML)
        text_puts(&p->text, "</body></html>\n");
}

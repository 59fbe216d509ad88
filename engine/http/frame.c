/* The framing of a request, where libmicrohttpd is lenient and proxies may read it otherwise. */
#include "http/frame.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* Bits of the value that http_frame_target() keeps, besides four times the length. No pointer is
 * odd. */
#define IS_TARGET    1u
#define NUL_OR_SPACE 2u

struct head {
    const char *why; /* NULL: nothing is wrong so far */
    const char *end; /* of the line before, in the buffer of the connection */
    const char *te;
    bool http11;
    int n_length, n_te, n_host, status;
};

/* RFC 9110, 5.6.2. */
static bool is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("!#$%&'*+-.^_`|~", s[i]))
            return false;
    return n > 0;
}

static bool has_control(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)s[i] < ' ' && s[i] != '\t') || s[i] == 127)
            return true;
    return false;
}

/* One or two bytes of a line's end further. */
static bool follows(const char *at, const char *end)
{
    return at == end + 1 || at == end + 2;
}

/* The library parses a header where it was received and cuts texts at NUL, so that a line of
 * which bytes were lost does not end where the next one begins. A folded line is moved. */
static bool in_place(struct head *h, const char *name, size_t n_name, const char *value,
                     size_t n_value)
{
    bool ok = follows(name, h->end) && value > name + n_name;

    for (const char *p = name + n_name; ok && p < value; p++)
        ok = *p == '\0' ? p == name + n_name : *p == ' ' || *p == '\t';
    h->end = value + n_value;
    return ok;
}

static enum MHD_Result check_line(void *arg, enum MHD_ValueKind kind, const char *name,
                                  size_t n_name, const char *value, size_t n_value)
{
    struct head *h = arg;

    (void)kind;
    value = value ? value : "";
    if (!is_token(name, n_name))
        h->why = "a header's name has a space or another character that names have not";
    else if (!HTTP_FRAME_STRICT && !in_place(h, name, n_name, value, n_value))
        h->why = "a header goes on in a further line, or has a NUL byte";
    else if (has_control(value, n_value))
        h->why = "a header's value has a control character";
    /* Blanks behind a value are no part of it (RFC 9112, 5.1), and the library leaves them there,
     * in bytes that are the connection's own. Framing is as the library has understood it. */
    else if (strcasecmp(name, "Transfer-Encoding") != 0)
        while (n_value > 0 && (value[n_value - 1] == ' ' || value[n_value - 1] == '\t'))
            ((char *)(uintptr_t)value)[--n_value] = '\0';
    h->n_host += strcasecmp(name, "Host") == 0;
    h->n_length += strcasecmp(name, "Content-Length") == 0;
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        h->te = value;
        h->n_te++;
    }
    return h->why ? MHD_NO : MHD_YES;
}

/* Behind the last line nothing but its end and an empty line. */
static bool ends_in_place(const struct head *h, struct MHD_Connection *c,
                          const char *method)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    const char *end = method + (info ? info->header_size : 0);

    return end >= h->end + 2 && end <= h->end + 4;
}

/* Does a list of codings end in chunked, which it has once? */
static bool ends_in_chunked(const char *te)
{
    const char *last = strrchr(te, ',');
    size_t n = last ? (size_t)(last - te) : 0;

    for (size_t i = 0; i < n; i++)
        if (strncasecmp(te + i, "chunked", strlen("chunked")) == 0)
            return false;
    return last && strcasecmp(last + 1 + strspn(last + 1, " \t"), "chunked") == 0;
}

static const char *check_lengths(struct head *h)
{
    if (h->n_length > 1)
        return "more than one Content-Length";
    if (h->n_host > 1)
        return "more than one Host";
    if (h->n_te == 0)
        return NULL;
    if (h->n_te == 1 && h->n_length == 0 && h->http11 && ends_in_chunked(h->te))
        h->status = MHD_HTTP_NOT_IMPLEMENTED;
    if (h->n_te > 1 || strcasecmp(h->te, "chunked") != 0)
        return "a Transfer-Encoding other than \"chunked\"";
    if (!h->http11)
        return "a Transfer-Encoding in HTTP/1.0";
    return h->n_length > 0 ? "both Content-Length and Transfer-Encoding" : NULL;
}

void *http_frame_target(void *unused, const char *target, struct MHD_Connection *c)
{
    (void)unused;
    (void)c;
    return (void *)(4 * (uintptr_t)strlen(target) +
                    (strstr(target, "%00") || strchr(target, ' ') ? NUL_OR_SPACE : 0) +
                    IS_TARGET);
}

bool http_frame_is_target(const void *p)
{
    return (uintptr_t)p & IS_TARGET;
}

const char *http_frame_check(struct MHD_Connection *c, const char *url,
                             const void *target, const char *method, const char *version,
                             int *status)
{
    struct head h = {.http11 = strcmp(version, "HTTP/1.0") != 0,
                     .status = MHD_HTTP_BAD_REQUEST};

    *status = h.status;

    /* METHOD SP TARGET SP VERSION */
    h.end = method + strlen(method) + 1 + (uintptr_t)target / 4 + 1 + strlen(version);
    if ((uintptr_t)target & NUL_OR_SPACE ||
        (!HTTP_FRAME_STRICT && version + strlen(version) != h.end))
        return "the target has a space or a NUL byte";
    if (has_control(url, strlen(url)))
        return "the target has a control character";
    MHD_get_connection_values_n(c, MHD_HEADER_KIND, check_line, &h);
    if (!h.why && !HTTP_FRAME_STRICT && !ends_in_place(&h, c, method))
        h.why = "a header's line has a NUL byte, or no name";
    if (!h.why && h.n_host == 0 && strcmp(version, "HTTP/1.0") != 0)
        h.why = "no header Host";
    if (!h.why)
        h.why = check_lengths(&h);
    *status = h.status;
    return h.why;
}

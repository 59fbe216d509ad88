#include "baselines/http.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <curl/curl.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

#define HEADER_BYTES_MAX 65536
#define WAIT_MS          1000 /* a post, a cancel or the end wakes the thread earlier */
#define MAX_IDLE         4096 /* connections kept */
#define RETRY_AFTER      "retry-after:"
/* No server in use allows one client fewer connections. */
#define MANY_CONNECTIONS 64

struct transfer {
    struct sut_http_call call;
    CURL *easy;
    char *body, *url;
    struct sut_http_head head;
    size_t n_header_bytes;
    uint64_t posted_ns, started_ns;
    bool wanted_gone; /* guarded by the lock */
    char error[CURL_ERROR_SIZE];
    char why[256]; /* of a callback that refused; "" none */
    struct transfer *next;
};

struct sut_http {
    struct sut_http_opts o;
    char *url, *api_key;
    CURLM *multi;
    struct curl_slist *headers;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    struct transfer *posted; /* not yet with the thread, newest first; lock */
    struct transfer *live;   /* the thread's own list; its links change under the lock */
    bool closing, cancels;   /* lock */
};

/* --- what both ways share */

static int global_rc;
static void global_init(void)
{
    global_rc = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? OK : ERR_IO;
}

static int need_curl(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, global_init);
    return global_rc == OK ? OK : err_set(ERR_IO, "libcurl cannot start");
}

static int make_headers(struct curl_slist **out, const char *api_key)
{
    /* No "Expect": a long prompt would wait for the server's consent. */
    static const char *const lines[] = {"Content-Type: application/json", "Expect:"};
    char line[1024];

    *out = NULL;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]) + (api_key != NULL); i++) {
        const char *text = line;
        struct curl_slist *more;

        if (i < sizeof(lines) / sizeof(lines[0]))
            text = lines[i];
        else if (snprintf(line, sizeof(line), "Authorization: Bearer %s", api_key) >=
                 (int)sizeof(line))
            return err_set(ERR_ARG, "the API key is longer than 1000 bytes");
        more = curl_slist_append(*out, text);
        if (!more) {
            curl_slist_free_all(*out);
            *out = NULL;
            return err_set(ERR_NOMEM, "out of memory");
        }
        *out = more;
    }
    return OK;
}

static long milliseconds(double s)
{
    return s <= 0 ? 0 : s < 0.001 ? 1 : (long)(s * 1e3);
}

static void set_common(CURL *e, const struct sut_http_opts *o, const char *url,
                       struct curl_slist *headers, char *error)
{
    curl_easy_setopt(e, CURLOPT_URL, url);
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(o->connect_timeout_s));
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, milliseconds(o->timeout_s));
    /* A proxy would be measured with the server. */
    curl_easy_setopt(e, CURLOPT_PROXY, "");
}

/* The time until o->end_ns, where that is less than the time of a request. */
static int limit_time(CURL *e, const struct sut_http_opts *o, const char *url)
{
    double left_s = ((double)o->end_ns - (double)clock_ns()) / 1e9;

    if (!o->end_ns)
        return OK;
    if (left_s <= 0)
        return err_set(ERR_IO, "%s: not asked: the time for questions was over", url);
    if (o->timeout_s <= 0 || left_s < o->timeout_s)
        curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, milliseconds(left_s));
    return OK;
}

static int join_url(char **out, const char *base, const char *path)
{
    struct text t = {0};

    text_puts(&t, base);
    text_puts(&t, path);
    text_put(&t, "", 1);
    *out = t.p;
    if (t.rc != OK)
        text_fini(&t), *out = NULL;
    return t.rc;
}

/* --- callbacks of libcurl, on the thread of the module */

static size_t take_header(char *p, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    const size_t n_name = strlen(RETRY_AFTER);
    char value[16] = "";

    t->n_header_bytes += size * n;
    if (t->n_header_bytes > HEADER_BYTES_MAX) {
        snprintf(t->why, sizeof(t->why), "headers of more than %d bytes",
                 HEADER_BYTES_MAX);
        return 0;
    }
    if (n > n_name && curl_strnequal(p, RETRY_AFTER, n_name)) {
        size_t n_value = n - n_name;

        if (n_value > sizeof(value) - 1)
            n_value = sizeof(value) - 1;
        memcpy(value, p + n_name, n_value);
        if (sscanf(value, "%ld", &t->head.retry_after_s) != 1)
            t->head.retry_after_s = -1;
    }
    return size * n;
}

static void read_head(struct transfer *t)
{
    char *type = NULL;

    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &t->head.status);
    curl_easy_getinfo(t->easy, CURLINFO_CONTENT_TYPE, &type);
    t->head.type = type ? type : "";
}

static size_t take_body(char *p, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;

    read_head(t);
    if (t->call.on_body(t->call.ctx, &t->head, p, size * n) == OK)
        return size * n;
    snprintf(t->why, sizeof(t->why), "%s", err_msg());
    return size * n + 1; /* not n: libcurl ends the transfer */
}

/* --- a transfer */

static void transfer_free(struct transfer *t)
{
    if (t->easy)
        curl_easy_cleanup(t->easy);
    mem_free(t->body);
    mem_free(t->url);
    mem_free(t);
}

static int64_t lag_of(const struct transfer *t)
{
    curl_off_t us = 0;

    curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &us);
    return us > 0 ? (int64_t)(t->started_ns - t->posted_ns) + (int64_t)us * 1000 : 0;
}

/* A server with a limit of connections per client closes further ones without an answer. */
static void explain_reset(struct transfer *t, size_t n_live, const char *error)
{
    if (t->head.status == 0 && n_live >= MANY_CONNECTIONS)
        snprintf(t->why, sizeof(t->why),
                 "%.48s; with %zu connections open: a limit of the server?", error,
                 n_live);
}

/* `t` is in no list of libcurl's. Reports its end and frees it. */
static void end_transfer(struct sut_http *h, struct transfer *t, CURLcode code,
                         bool canceled)
{
    struct transfer **p = &h->live;
    struct sut_http_end e = {.canceled = canceled};
    size_t n_live = 0;

    pthread_mutex_lock(&h->lock);
    while (*p) {
        n_live++;
        if (*p == t)
            *p = t->next;
        else
            p = &(*p)->next;
    }
    pthread_mutex_unlock(&h->lock);
    read_head(t);
    if (code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR || code == CURLE_GOT_NOTHING)
        explain_reset(t, n_live, t->error[0] ? t->error : curl_easy_strerror(code));
    e.head = t->head;
    e.lag_ns = lag_of(t);
    if (canceled)
        e.error = "canceled";
    else if (t->why[0])
        e.error = t->why;
    else if (code != CURLE_OK)
        e.error = t->error[0] ? t->error : curl_easy_strerror(code);
    t->call.on_end(t->call.ctx, &e);
    transfer_free(t);
}

/* --- the thread */

/* Take over what was posted, oldest first. Returns whether to go on. */
static bool take_posted(struct sut_http *h, struct transfer **posted, bool *cancels)
{
    bool go;

    *posted = NULL;
    pthread_mutex_lock(&h->lock);
    while (h->posted) {
        struct transfer *t = h->posted;

        h->posted = t->next;
        t->next = *posted;
        *posted = t;
    }
    *cancels = h->cancels;
    h->cancels = false;
    go = !h->closing;
    pthread_mutex_unlock(&h->lock);
    return go;
}

static void start_posted(struct sut_http *h, struct transfer *posted)
{
    while (posted) {
        struct transfer *t = posted;

        posted = t->next;
        pthread_mutex_lock(&h->lock);
        t->next = h->live;
        h->live = t;
        pthread_mutex_unlock(&h->lock);
        t->started_ns = clock_ns();
        if (curl_multi_add_handle(h->multi, t->easy) != CURLM_OK)
            end_transfer(h, t, CURLE_FAILED_INIT, false);
    }
}

/* One that is wanted gone (`all`: any), or NULL. */
static struct transfer *find_gone(struct sut_http *h, bool all)
{
    struct transfer *t;

    pthread_mutex_lock(&h->lock);
    for (t = h->live; t && !all && !t->wanted_gone; t = t->next)
        ;
    pthread_mutex_unlock(&h->lock);
    return t;
}

static void end_canceled(struct sut_http *h, bool all)
{
    struct transfer *t;

    while ((t = find_gone(h, all)) != NULL) {
        curl_multi_remove_handle(h->multi, t->easy); /* closes its connection */
        end_transfer(h, t, CURLE_OK, true);
    }
}

static void end_finished(struct sut_http *h)
{
    CURLMsg *m;
    int n_left;

    while ((m = curl_multi_info_read(h->multi, &n_left)) != NULL) {
        CURLcode code = m->data.result;
        CURL *easy = m->easy_handle;
        struct transfer *t = NULL;

        curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&t);
        curl_multi_remove_handle(h->multi, easy);
        end_transfer(h, t, code, false);
    }
}

static void *run_multi(void *arg)
{
    struct sut_http *h = arg;
    struct transfer *posted;
    bool cancels, go = true;
    int n_running;

    while (go) {
        go = take_posted(h, &posted, &cancels);
        start_posted(h, posted);
        if (cancels || !go)
            end_canceled(h, !go);
        curl_multi_perform(h->multi, &n_running);
        end_finished(h);
        if (go)
            curl_multi_poll(h->multi, NULL, 0, WAIT_MS, NULL);
    }
    return NULL;
}

/* --- the callers' side */

void sut_http_close(struct sut_http **hp)
{
    struct sut_http *h = *hp;

    if (!h)
        return;
    if (h->started) {
        pthread_mutex_lock(&h->lock);
        h->closing = true;
        pthread_mutex_unlock(&h->lock);
        curl_multi_wakeup(h->multi);
        pthread_join(h->thread, NULL);
    }
    if (h->multi)
        curl_multi_cleanup(h->multi);
    curl_slist_free_all(h->headers);
    pthread_mutex_destroy(&h->lock);
    mem_free(h->url);
    mem_free(h->api_key);
    mem_free(h);
    *hp = NULL;
}

int sut_http_open(struct sut_http **out, const struct sut_http_opts *o)
{
    struct sut_http *h;
    int rc = need_curl();

    *out = NULL;
    if (rc != OK)
        return rc;
    h = mem_new(MEM_HARNESS, 1, sizeof(*h));
    h->o = *o;
    rc = thread_mutex_init(&h->lock);
    if (rc != OK)
        goto out;
    h->url = mem_strdup(MEM_HARNESS, o->url);
    h->api_key = o->api_key ? mem_strdup(MEM_HARNESS, o->api_key) : NULL;
    rc = make_headers(&h->headers, h->api_key);
    if (rc != OK)
        goto out;
    h->multi = curl_multi_init();
    if (!h->multi) {
        rc = err_set(ERR_NOMEM, "libcurl: out of memory");
        goto out;
    }
    curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)MAX_IDLE);
    rc = thread_start(&h->thread, 0, run_multi, h, "HTTP requests");
    if (rc != OK)
        goto out;
    h->started = true;
    *out = h, h = NULL; /* the caller's now */
out:
    sut_http_close(&h);
    return rc;
}

static int transfer_new(struct transfer **out, struct sut_http *h,
                        const struct sut_http_call *c)
{
    struct transfer *t = mem_new(MEM_HARNESS, 1, sizeof(*t));
    int rc;

    *out = NULL;
    t->call = *c;
    t->posted_ns = clock_ns();
    t->head = (struct sut_http_head){.type = "", .retry_after_s = -1};
    t->body = mem_strndup(MEM_HARNESS, c->body, c->n_body);
    rc = join_url(&t->url, h->url, c->path);
    t->easy = rc == OK ? curl_easy_init() : NULL;
    if (rc == OK && !t->easy)
        rc = err_set(ERR_NOMEM, "libcurl: out of memory");
    if (rc != OK) {
        transfer_free(t);
        return rc;
    }
    set_common(t->easy, &h->o, t->url, h->headers, t->error);
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, t->body);
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->n_body);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    *out = t;
    return OK;
}

int sut_http_post(struct sut_http *h, const struct sut_http_call *c)
{
    struct transfer *t;
    int rc = transfer_new(&t, h, c);

    if (rc != OK)
        return rc;
    pthread_mutex_lock(&h->lock);
    t->next = h->posted;
    h->posted = t;
    pthread_mutex_unlock(&h->lock);
    curl_multi_wakeup(h->multi);
    return OK;
}

static void mark(struct transfer *t, int64_t id)
{
    for (; t; t = t->next)
        if (t->call.id == id)
            t->wanted_gone = true;
}

void sut_http_cancel(struct sut_http *h, int64_t id)
{
    pthread_mutex_lock(&h->lock);
    mark(h->posted, id);
    mark(h->live, id);
    h->cancels = true;
    pthread_mutex_unlock(&h->lock);
    curl_multi_wakeup(h->multi);
}

/* --- one request */

struct fetch {
    struct text *out;
    bool too_long;
};

static size_t take_fetched(char *p, size_t size, size_t n, void *arg)
{
    struct fetch *f = arg;

    f->too_long = f->out->n + size * n > SUT_HTTP_FETCH_BYTES;
    if (f->too_long)
        return 0;
    text_put(f->out, p, size * n);
    return f->out->rc == OK ? size * n : 0;
}

int sut_http_fetch(const struct sut_http_opts *o, const char *path, const char *body,
                   struct text *out, long *status)
{
    struct curl_slist *headers = NULL;
    struct fetch f = {.out = out};
    char error[CURL_ERROR_SIZE] = "", *url = NULL;
    CURL *e = NULL;
    CURLcode code;
    int rc = need_curl();

    *status = 0;
    if (rc == OK)
        rc = make_headers(&headers, o->api_key);
    if (rc == OK)
        rc = join_url(&url, o->url, path);
    e = rc == OK ? curl_easy_init() : NULL;
    if (rc == OK && !e)
        rc = err_set(ERR_NOMEM, "libcurl: out of memory");
    if (rc != OK)
        goto out;
    set_common(e, o, url, headers, error);
    rc = limit_time(e, o, url);
    if (rc != OK)
        goto out;
    if (body)
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take_fetched);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, &f);
    code = curl_easy_perform(e);
    curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, status);
    if (f.too_long)
        rc = err_set(ERR_LIMIT, "%s: an answer of more than %d bytes", url,
                     SUT_HTTP_FETCH_BYTES);
    else if (out->rc != OK)
        rc = out->rc;
    else if (code != CURLE_OK)
        rc = err_set(ERR_IO, "%s: %s", url, error[0] ? error : curl_easy_strerror(code));
out:
    if (e)
        curl_easy_cleanup(e);
    curl_slist_free_all(headers);
    mem_free(url);
    return rc;
}

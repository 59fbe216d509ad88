/* Opening the server where threads, locks, or libmicrohttpd's own thread cannot be had: one line,
 * and neither a thread nor the port is left. */
#include "tests/support/faults.h"
#include "tests/support/tiny_model.h"

#include <microhttpd.h>

#include "http/gen.h"
#include "http/http.h"

static bool no_daemon;

struct MHD_Daemon *__real_MHD_start_daemon(unsigned flags, uint16_t port,
                                           MHD_AcceptPolicyCallback accept,
                                           void *accept_ctx,
                                           MHD_AccessHandlerCallback handler, void *ctx,
                                           ...);
struct MHD_Daemon *__wrap_MHD_start_daemon(unsigned flags, uint16_t port,
                                           MHD_AcceptPolicyCallback accept,
                                           void *accept_ctx,
                                           MHD_AccessHandlerCallback handler, void *ctx,
                                           ...);

struct MHD_Daemon *__wrap_MHD_start_daemon(unsigned flags, uint16_t port,
                                           MHD_AcceptPolicyCallback accept,
                                           void *accept_ctx,
                                           MHD_AccessHandlerCallback handler, void *ctx,
                                           ...)
{
    struct MHD_Daemon *d;
    va_list options;

    if (no_daemon)
        return NULL;
    va_start(options, ctx);
    d = MHD_start_daemon_va(flags, port, accept, accept_ctx, handler, ctx, options);
    va_end(options);
    return d;
}

struct server {
    struct http_opts o;
    struct serve_opts so;
    struct serve *s;
};

static void server_open(struct server *x)
{
    assert_ok(opt_init(http_opt_table, &x->o));
    assert_ok(opt_init(serve_opt_table, &x->so));
    x->o.port = 0;
    x->so.model = (char *)tiny_model(KERN_F32);
    x->so.pin = false;
    x->so.threads = 1;
    assert_ok(serve_open(&x->s, &x->so));
}

static void server_close(struct server *x)
{
    serve_close(&x->s);
    x->so.model = NULL;
    opt_free(serve_opt_table, &x->so);
    opt_free(http_opt_table, &x->o);
}

static int start_and_close(struct server *x)
{
    struct http *h;
    int rc = http_bind(&h, &x->o);

    assert_true((rc == OK) == (h != NULL));
    if (rc == OK)
        rc = http_start(h, x->s, &x->so);
    http_close(&h);
    assert_null(h);
    return rc;
}

TEST(a_thread_or_lock_cannot_be_had)
{
    struct server x;

    server_open(&x);
    /* Two locks, two conditions, and two threads of its own. */
    assert_int_equal(test_thread_faults(start_and_close(&x), true), 10);
    server_close(&x);
}

TEST(the_daemon_cannot_be_had)
{
    struct server x;
    int n_fds, n_tasks;

    server_open(&x);
    n_fds = left_fds();
    n_tasks = left_files("/proc/self/task");
    no_daemon = true;
    assert_err(start_and_close(&x), ERR_IO, "the server cannot be started");
    no_daemon = false;
    assert_int_equal(left_fds(), n_fds);
    test_no_more_threads(n_tasks);
    assert_ok(start_and_close(&x));
    server_close(&x);
}

static int new_and_unref(const struct http_request *r)
{
    struct http_gen *g;
    int rc = http_gen_new(&g, r, 2, NULL, 100);

    assert_true((rc == OK) == (g != NULL));
    for (int i = 0; i < 2 && rc == OK; i++)
        rc = http_gen_size(g, i, r, 1, 4);
    http_gen_unref(g);
    return rc;
}

/* Then it is that request which fails. */
TEST(the_lock_of_a_request_cannot_be_had)
{
    const struct http_request r = {.api = HTTP_COMPLETION, .n_top = 2};

    assert_int_equal(test_thread_faults(new_and_unref(&r), true), 1);
    assert_true(test_allocations(new_and_unref(&r), true) > 1);
}

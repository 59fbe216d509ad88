/* The greeting of machines and front: who does not say hello keeps nobody out, and who has another
 * key or another model is refused, by a line on both ends. */
#include "base/file.h"
#include "tests/roles/fake_machine.h"

static struct world w;
static int callers[3];

static int connect_to(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0)
        abort();
    return fd;
}

/* One says nothing, one begins, and one is something else. */
static bool call_in_vain(struct world *x, int port)
{
    static const char text[400] = "GET / HTTP/1.1\r\n\r\n";

    (void)x;
    for (int i = 0; i < 3; i++)
        callers[i] = connect_to(port);
    (void)!send(callers[1], text, 7, MSG_NOSIGNAL);
    (void)!send(callers[2], text, sizeof(text), MSG_NOSIGNAL);
    return true;
}

TEST(a_silent_connection_keeps_nobody_out)
{
    memset(&w, 0, sizeof(w));
    w.before = call_in_vain;
    open_world(&w);
    assert_non_null(w.s);
    assert_int_equal(run_requests(&w, N_ASKED), N_ASKED);
    close_world(&w);
    for (int i = 0; i < 3; i++)
        close(callers[i]);
}

static struct fake_machine stranger;

/* The place that is left is taken when the stranger has gone. */
static void *start_last(void *arg)
{
    pthread_join(stranger.thread, NULL);
    return fake_main(arg);
}

/* One that is let in ends, and all places are then taken: the front waits for nobody. */
static void *stranger_main(void *arg)
{
    fake_join(&stranger);
    if (stranger.rc == OK)
        fake_close(&stranger);
    return arg;
}

static bool send_stranger(struct world *x, int port)
{
    struct fake_machine *one = &x->fakes[0]; /* a prompt machine, as the stranger */

    stranger.is_prompt = true;
    stranger.port = port;
    stranger.vocab = FAKE_VOCAB;
    assert_int_equal(pthread_create(&stranger.thread, NULL, stranger_main, NULL), 0);
    assert_int_equal(pthread_create(&one->thread, NULL, start_last, one), 0);
    for (int i = 1; i < N_FAKES; i++)
        fake_start(&x->fakes[i]);
    return false;
}

static void check_refused(const char *says)
{
    open_world(&w);
    assert_non_null(w.s);
    assert_int_equal(run_requests(&w, N_ASKED), N_ASKED);
    close_world(&w);
    assert_int_equal(stranger.rc, ERR_STATE);
    if (!strstr(stranger.why, says))
        fail_msg("\"%s\", wanted \"%s\"", stranger.why, says);
}

static char *key_file(const char *name, const char *key)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
    assert_ok(file_write(path, key, strlen(key)));
    return mem_strdup(MEM_OTHER, path);
}

TEST(only_machines_with_the_key_join)
{
    char *right = key_file("right", "0123456789abcdef0123\n");
    char *other = key_file("other", "0123456789abcdef0124\n");

    for (int with = 0; with < 2; with++) {
        memset(&w, 0, sizeof(w));
        memset(&stranger, 0, sizeof(stranger));
        w.before = send_stranger;
        w.key_file = right;
        stranger.key_file = with ? other : NULL;
        stranger.model_id = 1;
        check_refused("another key");
    }
    mem_free(right);
    mem_free(other);
}

TEST(another_model_is_refused)
{
    memset(&w, 0, sizeof(w));
    memset(&stranger, 0, sizeof(stranger));
    w.before = send_stranger;
    stranger.model_id = 12345;
    check_refused("its model is 0000000000003039, expected");
}

TEST(other_hosts_need_a_key)
{
    char *weak = key_file("weak", "secret\n");
    struct serve_opts so = engine_opts();

    for (int i = 0; i < 2; i++) {
        struct roles_opts o = roles_opts("prompt=1,token=1");
        struct serve *s;

        assert_ok(opt_set(roles_opt_table, &o, "machines", "0.0.0.0:0", "test"));
        assert_ok(opt_set(roles_opt_table, &o, "transport", "socket", "test"));
        if (i == 1)
            assert_ok(opt_set(roles_opt_table, &o, "key_file", weak, "test"));
        assert_err(roles_open(&s, &so, &o), ERR_ARG,
                   i == 1 ? "a key of 6 bytes: expected 16 at least"
                          : "0.0.0.0: machines of other hosts need a key: --key-file");
        opt_free(roles_opt_table, &o);
    }
    free_opts(&so);
    mem_free(weak);
}

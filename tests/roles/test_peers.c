/* Machines that join and break the protocol: each is named and dropped, its requests are computed
 * by others, and no client gets another text. */
#include "tests/roles/fake_machine.h"

static struct world w;

static void open_fakes(int changed, fake_change_fn change, void *ctx)
{
    memset(&w, 0, sizeof(w));
    if (change) {
        w.fakes[changed].change = change;
        w.fakes[changed].ctx = ctx;
    }
    open_world(&w);
    assert_non_null(w.s);
}

static bool ended_of(const char *text)
{
    struct log_warning all[64];
    int n = log_warnings_take(all, 64);

    for (int i = 0; i < n; i++)
        if (strcmp(all[i].code, "machine_ended") == 0 && strstr(all[i].text, text))
            return true;
    return false;
}

/* The first message of a type, with one field changed. */
struct fault {
    enum roles_message_type type;
    enum { TYPE, N_MORE, ID, TOKEN, FINISH, PEER, SENDS, AT, CHECKSUM, MORE, CUT } field;
    int64_t value;
    const char *says;
    bool done;
};

static void change_field(void *ctx, int i, struct roles_message *head, char *more,
                         size_t *n)
{
    struct fault *f = ctx;

    (void)i;
    if (f->done || head->type != f->type)
        return;
    f->done = true;
    switch (f->field) {
    case TYPE:
        head->type = (uint32_t)f->value;
        break;
    case N_MORE:
        head->n_more = (uint32_t)f->value;
        break;
    case ID:
        head->id = f->value;
        break;
    case TOKEN:
        head->token = (int32_t)f->value;
        break;
    case FINISH:
        head->finish = (int32_t)f->value;
        break;
    case PEER:
        head->peer = (int32_t)f->value;
        break;
    case SENDS:
        head->sends = (int32_t)f->value;
        break;
    case AT:
        head->at = f->value;
        break;
    case CHECKSUM:
        head->hash ^= (uint64_t)f->value;
        return;
    case MORE:
        memcpy(more, &f->value, sizeof(f->value));
        break;
    case CUT:
        *n = (size_t)f->value;
        return;
    }
    if (f->field != N_MORE)
        roles_message_seal(head, more);
    else /* what follows is not there */
        head->hash = 0;
}

TEST(what_breaks_the_protocol_is_named)
{
    static struct fault all[] = {
        {ROLES_TOKEN, TOKEN, 1 << 20, "token 1048576, end 0: expected a token of", 0},
        {ROLES_TOKEN, TOKEN, 0x7ffffff0, "expected a token of 0 to", 0},
        {ROLES_TOKEN, TOKEN, -5, "token -5", 0},
        {ROLES_TOKEN, TOKEN, -1, "token -1, end 0", 0},
        {ROLES_TOKEN, FINISH, 77, "end 77: expected 0", 0},
        {ROLES_TOKEN, FINISH, SERVE_LENGTH, "with end 1: expected 0", 0},
        {ROLES_TOKEN, FINISH, SERVE_EOS, "with end 2: expected 0", 0},
        {ROLES_TOKEN, AT, 3, "token 3 of a request: expected token", 0},
        {ROLES_TOKEN, AT, INT64_MAX, "", 0},
        {ROLES_TOKEN, ID, INT64_C(1) << 62, "which it was not given", 0},
        {ROLES_TOKEN, ID, -1, "which it was not given", 0},
        {ROLES_TOKEN, TYPE, 99, "a message of type 99", 0},
        {ROLES_TOKEN, TYPE, ROLES_CANCEL, "a message of type 7", 0},
        {ROLES_TOKEN, TYPE, ROLES_READY, "ready twice", 0},
        {ROLES_TOKEN, N_MORE, -1, "a wrong checksum", 0},
        {ROLES_TOKEN, CHECKSUM, 1, "a wrong checksum", 0},
        {ROLES_TOKEN, CUT, 7, "a wrong checksum", 0},
        {ROLES_STAT, MORE, -1, "statistics that are negative", 0},
        {ROLES_STAT, CHECKSUM, 1, "a wrong checksum", 0},
    };

    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
            struct fault f = all[i];

            (void)ended_of("");
            open_fakes(2 * kind, change_field, &f);
            for (int k = 0; k < 20 && !f.done; k++)
                assert_int_equal(run_requests(&w, N_ASKED), N_ASKED);
            assert_true(f.done);
            assert_int_equal(run_requests(&w, N_ASKED), N_ASKED);
            if (!ended_of(f.says))
                fail_msg("fault %zu of kind %d is not named: %s", i, kind, f.says);
            close_world(&w);
        }
}

static void silence(void *ctx, int i, struct roles_message *head, char *more, size_t *n)
{
    (void)ctx, (void)i, (void)more;
    if (head->type == ROLES_CONNECTED)
        *n = 0;
}

/* A machine that never opens its connections ends the start with its name. */
TEST(the_start_has_an_end)
{
    memset(&w, 0, sizeof(w));
    w.fakes[2].change = silence;
    open_world(&w);
    assert_null(w.s);
    assert_non_null(strstr(err_msg(), "machine"));
    assert_non_null(strstr(err_msg(), "has not opened a connection for"));
    close_world(&w);
}

/* What the token machine received as the first token is not what the prompt machine sent. */
TEST(first_tokens_are_compared)
{
    struct fault f = {ROLES_ARRIVED, TOKEN, 7, "", false};

    open_fakes(2, change_field, &f);
    for (int k = 0; k < 20 && !f.done; k++)
        assert_int_equal(run_requests(&w, N_ASKED), N_ASKED);
    assert_true(f.done);
    began_ns = clock_ns();
    while (!test_warned("connection_failed")) {
        go_on(w.s);
        if (clock_ns() - began_ns > UINT64_C(30000000000))
            fail_msg("the connection is not given up");
    }
    assert_int_equal(run_requests(&w, N_ASKED), N_ASKED);
    close_world(&w);
}

static void lose_last(void *ctx, int i, struct roles_message *head, char *more, size_t *n)
{
    bool *done = ctx;

    (void)i, (void)more;
    if (*done || head->type != ROLES_TOKEN || head->finish != SERVE_LENGTH)
        return;
    *done = true;
    *n = 0;
}

/* An answer's last token is found missing: its machine says that it owes nothing. */
TEST(a_lost_answer_is_computed_again)
{
    bool done = false;

    open_fakes(2, lose_last, &done);
    for (int k = 0; k < 20 && !done; k++)
        assert_int_equal(run_requests(&w, N_ASKED), N_ASKED);
    assert_true(done);
    close_world(&w);
}

/* Schedules on disk: what is put comes back, another key's is kept and never used, damage
 * is refused, and every number of rows gets a schedule. */
#include "tests/tune/bench_model.h"
#include "tests/support/faults.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "tune/schedule_cache.h"
#include "tune/space.h"

static const int cpus[] = {0, 2, 3, 5};
static const struct tune_key here = {"A CPU", "0x1", "abc"};

static const char *cache_path(void)
{
    static char path[600];

    snprintf(path, sizeof(path), "%s/schedules.json", test_dir());
    unlink(path);
    return path;
}

static struct tune_shape shape_of(int64_t m)
{
    return (struct tune_shape){
        .v = &bench_model_mks, .m = m, .n = 2048, .k = 1024, .k_unit = 64};
}

/* A schedule that says by its numbers which m it is for. */
static struct kern_schedule schedule_of(int64_t m, int n_threads)
{
    return (struct kern_schedule){.mr = 14,
                                  .np = 2,
                                  .bm = 14 * (m + 1),
                                  .bn = 4,
                                  .bk = 128,
                                  .pm = 1,
                                  .pn = n_threads,
                                  .pk = 1,
                                  .order = KERN_ORDER_MNK};
}

static void put(struct tune_cache *c, int64_t m)
{
    const struct tune_shape s = shape_of(m);
    const struct kern_schedule g = schedule_of(m, 2);
    const struct measure_report t = {.estimate = 1.0 / 3, .lo = 0.1, .hi = 0.5, .n = 5};

    assert_ok(tune_cache_put(c, &s, &g, m % 2 ? &t : NULL));
}

static struct tune_cache *open_as(const char *path, const struct tune_key *key, int n)
{
    struct tune_cache *c;

    assert_ok(tune_cache_open_as(&c, path, key, cpus, n));
    return c;
}

static bool has(const struct tune_cache *c, int64_t m)
{
    const struct tune_shape s = shape_of(m);
    const struct kern_schedule want = schedule_of(m, 2);
    struct kern_schedule g;

    if (!tune_cache_has(c, &s, &g))
        return false;
    assert_true(tune_same(&g, &want));
    return true;
}

static size_t n_groups(const struct tune_cache *c)
{
    json_t *o = tune_cache_to_json(c);
    size_t n = json_array_size(json_object_get(o, "groups"));

    json_decref(o);
    return n;
}

/* One group of seven entries, ascending, of which the first was measured. */
static void check_group(const struct tune_cache *c)
{
    json_t *o = tune_cache_to_json(c), *groups = json_object_get(o, "groups");
    const json_t *list = json_object_get(json_array_get(groups, 0), "schedules"), *e;

    assert_int_equal(n_groups(c), 1);
    assert_int_equal(json_array_size(list), 7);
    for (size_t i = 0; i < 7; i++) {
        e = json_array_get(list, i);
        assert_true(i == 0 ||
                    json_f64_at(e, "m") > json_f64_at(json_array_get(list, i - 1), "m"));
        assert_true(i > 1 || json_f64_at(e, "n_runs") == (i ? 0 : 5));
        assert_true(i > 0 || json_f64_at(e, "estimate_s") == 1.0 / 3);
    }
    json_decref(o);
}

TEST(what_was_put_comes_back)
{
    static const int64_t order[] = {8, 1, 512, 3, 64, 2, 8, 33};
    const char *path = cache_path();
    struct tune_cache *c = open_as(path, &here, 2);

    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
            assert_int_equal(has(c, order[i]), round > 0 || i == 6);
            put(c, order[i]);
        }
        assert_false(has(c, 4));
        check_group(c);
        assert_ok(tune_cache_save(c));
        tune_cache_close(&c);
        c = open_as(path, &here, 2);
        check_group(c);
    }
    tune_cache_close(&c);
}

/* Every member of the key matters; what is another's stays in the file. */
TEST(another_key_is_kept_and_not_used)
{
    struct tune_key other[] = {here, here, here};
    const char *path = cache_path();
    struct tune_cache *c = open_as(path, &here, 2);
    struct tune_shape s = shape_of(8);
    struct kern_variant v = bench_model_mks;
    struct kern_schedule g;

    put(c, 8);
    assert_ok(tune_cache_save(c));
    tune_cache_close(&c);
    snprintf(other[0].cpu, sizeof(other[0].cpu), "B CPU");
    snprintf(other[1].microcode, sizeof(other[1].microcode), "0x2");
    snprintf(other[2].commit, sizeof(other[2].commit), "abd");
    for (int i = 0; i < 3; i++) {
        c = open_as(path, &other[i], 2);
        assert_false(has(c, 8));
        put(c, 8);
        assert_ok(tune_cache_save(c));
        tune_cache_close(&c);
    }
    c = open_as(path, &here, 3); /* other threads */
    assert_false(has(c, 8));
    tune_cache_close(&c);
    c = open_as(path, &here, 2);
    assert_true(has(c, 8));
    assert_int_equal(n_groups(c), 4);
    v.name = "another";
    s.v = &v;
    assert_false(tune_cache_has(c, &s, &g));
    v = bench_model_mks;
    v.op = KERN_GEMM_BF16;
    assert_false(tune_cache_has(c, &s, &g));
    s = shape_of(8);
    s.n += 16;
    assert_false(tune_cache_has(c, &s, &g));
    s = shape_of(8);
    s.k_unit = 0;
    assert_false(tune_cache_has(c, &s, &g));
    tune_cache_close(&c);
}

/* A key that is not there, or CPUs that are not, are not an error. */
TEST(the_real_key_says_something)
{
    struct tune_key k;

    tune_key_here(&k);
    assert_true(k.commit[0] || k.cpu[0]);
}

static void write_sample(const char *path)
{
    struct tune_cache *c = open_as(path, &here, 2);

    put(c, 1);
    put(c, 64);
    assert_ok(tune_cache_save(c));
    tune_cache_close(&c);
}

static int parse(const char *path)
{
    struct tune_cache *c;
    int rc = tune_cache_open_as(&c, path, &here, cpus, 2);

    assert_true((rc == OK) == (c != NULL));
    tune_cache_close(&c);
    return rc;
}

TEST(cut_at_every_byte_is_refused)
{
    struct test_document d = {.path = cache_path(), .parse = parse};
    char *text;

    write_sample(d.path);
    d.data = text = test_read(d.path, &d.n);
    while (text[d.n - 1] != '}') /* without the newline it is whole */
        d.n--;
    assert_ok(test_parse(&d, text, d.n));
    assert_int_equal(test_cuts(&d, d.n, NULL), d.n);
    mem_free(text);
}

/* A changed byte is refused, or changed nothing but blanks. */
TEST(a_changed_byte_is_refused)
{
    const char *path = cache_path();
    struct tune_cache *c;
    char *text;
    size_t n;
    int n_refused = 0;

    write_sample(path);
    text = test_read(path, &n);
    for (size_t i = 0; i < n; i++) {
        static const char put_there[] = "07\"}\xff";
        char was = text[i];

        for (size_t k = 0; k + 1 < sizeof(put_there); k++) {
            int rc;

            text[i] = put_there[k];
            test_write(path, text, n);
            rc = tune_cache_open_as(&c, path, &here, cpus, 2);
            if (rc != OK) {
                assert_int_equal(rc, ERR_FORMAT);
                assert_null(strchr(err_msg(), '\n'));
                n_refused++;
                continue;
            }
            if (!has(c, 1) || !has(c, 64) || has(c, 2))
                fail_msg("byte %zu, '%c' for '%c', is accepted", i, put_there[k], was);
            tune_cache_close(&c);
        }
        text[i] = was;
    }
    assert_true(n_refused > (int)n);
    mem_free(text);
}

/* Written with a right checksum, yet wrong: the field is named. */
TEST(wrong_values_name_their_place)
{
    static const struct {
        const char *part;
        struct kern_schedule s;
    } rows[] = {
        {"groups[0].schedules[0]: mr", {.mr = 0, .np = 1, .bm = 1, .bn = 1, .bk = 2}},
        {"groups[0].schedules[0]: np", {.mr = 1, .np = 9, .bm = 1, .bn = 1, .bk = 2}},
        {"groups[0].schedules[0]: bk", {.mr = 1, .np = 1, .bm = 1, .bn = 1, .bk = 1}},
        {"groups[0].schedules[0]: pm", {.mr = 1, .np = 1, .bm = 1, .bn = 1, .bk = 2}},
    };
    const struct tune_shape shape = shape_of(4);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *path = cache_path();
        struct tune_cache *c = open_as(path, &here, 2);

        assert_ok(tune_cache_put(c, &shape, &rows[i].s, NULL));
        assert_ok(tune_cache_save(c));
        tune_cache_close(&c);
        assert_err(tune_cache_open_as(&c, path, &here, cpus, 2), ERR_FORMAT,
                   rows[i].part);
    }
}

TEST(saving_leaves_the_old_file_or_the_new)
{
    const char *path = cache_path();
    struct tune_cache *c;
    struct dirent *e;
    long n = 0;
    int rc, n_files = 0;
    DIR *dir;

    write_sample(path);
    c = open_as(path, &here, 2);
    put(c, 128);
    do {
        struct tune_cache *again;

        mem_fail_after(n++, 1);
        rc = tune_cache_save(c);
        mem_fail_after(-1, 0);
        assert_true(rc == OK || rc == ERR_NOMEM);
        again = open_as(path, &here, 2);
        assert_true(has(again, 1) && has(again, 64));
        assert_true(has(again, 128) || rc != OK); /* a late error may follow the rename */
        tune_cache_close(&again);
        assert_true(n < 10000);
    } while (rc != OK);
    tune_cache_close(&c);
    dir = opendir(test_dir());
    assert_non_null(dir);
    while ((e = readdir(dir)))
        n_files += e->d_name[0] != '.';
    closedir(dir);
    assert_int_equal(n_files, 1); /* no temporary name is left */
}

/* A process that puts a schedule into the cache c and saves it once `start` is closed. */
static pid_t saver(struct tune_cache *c, int64_t m, const struct kern_schedule *s,
                   const int start[2])
{
    const struct tune_shape shape = shape_of(m);
    char byte;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid != 0)
        return pid;
    close(start[1]);
    if (tune_cache_put(c, &shape, s, NULL) != OK || read(start[0], &byte, 1) != 0)
        _exit(1);
    _exit(tune_cache_save(c) == OK ? 0 : 2);
}

/* What several processes save at the same time is kept; what one has only read is not put
 * in the place of another's newer one. */
TEST(processes_share_a_file)
{
    enum { N = 8 };
    const char *path = cache_path();
    const struct tune_shape first = shape_of(1);
    const struct kern_schedule newer = schedule_of(99, 2);
    struct tune_cache *c = open_as(path, &here, 2);
    struct kern_schedule s;
    int start[2], status;
    pid_t pids[N];

    put(c, 1);
    assert_ok(tune_cache_save(c));
    tune_cache_close(&c);
    c = open_as(path, &here, 2); /* all have read the older one */
    assert_int_equal(pipe(start), 0);
    for (int i = 0; i < N; i++) {
        s = i == 0 ? newer : schedule_of(i + 1, 2);
        pids[i] = saver(c, i + 1, &s, start);
    }
    close(start[1]);
    close(start[0]);
    for (int i = 0; i < N; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    tune_cache_close(&c);
    c = open_as(path, &here, 2);
    for (int m = 2; m <= N; m++)
        if (!has(c, m))
            fail_msg("the schedule for %d rows is lost", m);
    assert_true(tune_cache_has(c, &first, &s) && tune_same(&s, &newer));
    tune_cache_close(&c);
}

TEST(opening_without_memory_is_an_error)
{
    const char *path = cache_path();
    struct tune_cache *c;

    write_sample(path);
    assert_true(test_allocations(tune_cache_open_as(&c, path, &here, cpus, 2), !c) > 0);
    tune_cache_close(&c);
}

/* ---- dispatch ---- */

#define M_MAX 512

static void check_table(const struct tune_cache *c, int64_t n, int64_t k, int64_t k_unit,
                        int n_threads, struct kern_schedule *out, int64_t *n_tuned)
{
    struct kern_mat w;

    kern_mat_layout(&w, KERN_F32, n, k, k_unit);
    assert_ok(tune_table(c, &bench_model_mks, &w, M_MAX, n_threads, out, n_tuned));
    for (int64_t m = 1; m <= M_MAX; m++)
        assert_ok(kern_schedule_check(&out[m - 1], &bench_model_mks, &w, m, n_threads));
}

static bool is_default(const struct kern_schedule *s, int64_t m, int n_threads)
{
    struct kern_schedule d;
    struct kern_mat w;

    kern_mat_layout(&w, KERN_F32, 2048, 1024, 64);
    kern_schedule_default(&d, &bench_model_mks, &w, m, n_threads);
    return tune_same(s, &d);
}

TEST(untuned_tables_are_the_default)
{
    struct kern_schedule out[M_MAX];
    int64_t n_tuned = -1;

    check_table(NULL, 2048, 1024, 64, 2, out, &n_tuned);
    assert_int_equal(n_tuned, 0);
    for (int64_t m = 1; m <= M_MAX; m++)
        assert_true(is_default(&out[m - 1], m, 2));
}

/* Tuned at 4, 20 and 200 of 512. */
TEST(between_tuned_rows_the_one_below_serves)
{
    struct tune_cache *c = open_as(cache_path(), &here, 2);
    struct kern_schedule out[M_MAX];
    int64_t n_tuned;

    put(c, 4), put(c, 20), put(c, 200);
    check_table(c, 2048, 1024, 64, 2, out, &n_tuned);
    for (int64_t m = 1; m <= M_MAX; m++) {
        /* below 128 rows an entry holds for less than twice as many */
        int64_t from = m >= 200 ? 200 : m >= 20 && m < 40 ? 20 : m >= 4 && m < 8 ? 4 : 0;

        if (!from) {
            assert_true(is_default(&out[m - 1], m, 2));
            continue;
        }
        assert_int_equal(out[m - 1].bn, 4);
        assert_int_equal(out[m - 1].bk, 128);
        assert_int_equal(out[m - 1].pn, 2);
        assert_int_equal(out[m - 1].bm, 14 * (from + 1));
        assert_int_equal(out[m - 1].mr, 14); /* blocks of nearly equal height */
    }
    assert_int_equal(n_tuned, 4 + 20 + 313);
    /* an entry for one thread less is another key's */
    check_table(c, 2048, 1024, 64, 1, out, &n_tuned);
    assert_int_equal(n_tuned, 0);
    tune_cache_close(&c);
}

/* One block of rows that would become two reads the weights twice: it grows, or the
 * default serves. */
TEST(one_block_stays_one_block)
{
    struct tune_cache *c = open_as(cache_path(), &here, 2);
    const struct tune_shape s = shape_of(6);
    struct kern_schedule g = schedule_of(6, 2), out[M_MAX];
    int64_t n_tuned;

    g.mr = 6, g.np = 3, g.bm = 6; /* 3 panels take 9 rows at most */
    assert_ok(tune_cache_put(c, &s, &g, NULL));
    check_table(c, 2048, 1024, 64, 2, out, &n_tuned);
    for (int64_t m = 6; m < 12; m++) {
        if (m <= 9) {
            assert_int_equal(out[m - 1].np, 3);
            assert_int_equal(out[m - 1].mr, m);
            assert_true(out[m - 1].bm >= m);
        } else {
            assert_true(is_default(&out[m - 1], m, 2));
        }
    }
    assert_int_equal(n_tuned, 4);
    tune_cache_close(&c);
}

/* What does not fit the shape in use is never handed out. */
TEST(tables_are_legal_whatever_the_file_says)
{
    struct kern_schedule out[M_MAX];
    struct rng rng;

    rng_init(&rng, test_seed(), "table");
    for (int i = 0; i < 200; i++) {
        struct tune_cache *c = open_as(cache_path(), &here, 4);
        int64_t n_tuned;

        for (int k = 0; k < 20; k++) {
            struct tune_shape s = shape_of(1 + (int64_t)rng_below(&rng, M_MAX));
            struct kern_schedule g = {
                .mr = 1 + (int)rng_below(&rng, 32),
                .np = 1 + (int)rng_below(&rng, 8),
                .bm = 1 + (int64_t)rng_below(&rng, 200),
                .bn = 1 + (int64_t)rng_below(&rng, 200),
                .bk = 2 + (int64_t)rng_below(&rng, 2000),
                .pm = 1 << rng_below(&rng, 3),
                .pn = 1 << rng_below(&rng, 3),
                .pk = 1 << rng_below(&rng, 3),
                .order = (enum kern_order)rng_below(&rng, KERN_N_ORDERS)};

            assert_ok(tune_cache_put(c, &s, &g, NULL));
        }
        check_table(c, 2048, 1024, 64, 4, out, &n_tuned);
        tune_cache_close(&c);
    }
}

TEST(more_threads_than_opened_for_are_refused)
{
    struct tune_cache *c = open_as(cache_path(), &here, 2);
    struct kern_schedule out[4];
    struct kern_mat w;

    kern_mat_layout(&w, KERN_F32, 64, 64, 0);
    assert_err(tune_table(c, &bench_model_mks, &w, 4, 3, out, NULL), ERR_ARG, "for 2");
    tune_cache_close(&c);
    assert_err(tune_cache_open(&c, "x", cpus, 0), ERR_ARG, "0 threads");
}

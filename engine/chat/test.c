/* Tests: what may stand behind "is". */
#include "chat/impl.h"

#include <string.h>

#define TEST(name, condition)                                                            \
    static struct chat_value t_##name(struct chat_run *r, struct chat_value v,           \
                                      const struct chat_args *a)                         \
    {                                                                                    \
        (void)r, (void)a;                                                                \
        return chat_bool(condition);                                                     \
    }

TEST(boolean, v.kind == CHAT_BOOL)
TEST(callable, v.kind == CHAT_MACRO || v.kind == CHAT_METHOD || v.kind == CHAT_LOOP ||
                   v.kind == CHAT_UNDEFINED)
TEST(defined, v.kind != CHAT_UNDEFINED)
TEST(eq, chat_equal(r, v, a->v[0]))
TEST(false, v.kind == CHAT_BOOL && !v.i)
TEST(float, v.kind == CHAT_FLOAT)
TEST(ge, chat_compare(r, v, a->v[0]) >= 0)
TEST(gt, chat_compare(r, v, a->v[0]) > 0)
TEST(in, chat_contains(r, a->v[0], v))
TEST(integer, v.kind == CHAT_INT)
TEST(iterable, v.kind == CHAT_STR || v.kind == CHAT_LIST || v.kind == CHAT_DICT ||
                   v.kind == CHAT_UNDEFINED || v.kind == CHAT_LOOP)
TEST(le, chat_compare(r, v, a->v[0]) <= 0)
TEST(lt, chat_compare(r, v, a->v[0]) < 0)
TEST(mapping, v.kind == CHAT_DICT)
TEST(ne, !chat_equal(r, v, a->v[0]))
TEST(none, v.kind == CHAT_NONE)
TEST(number, chat_is_number(v))
TEST(sameas, v.kind == a->v[0].kind && chat_equal(r, v, a->v[0]) &&
                 ((v.kind != CHAT_LIST && v.kind != CHAT_DICT) || v.list == a->v[0].list))
TEST(sequence, v.kind == CHAT_STR || v.kind == CHAT_DICT || v.kind == CHAT_UNDEFINED ||
                   (v.kind == CHAT_LIST && v.list->kind < CHAT_VIEW))
TEST(string, v.kind == CHAT_STR)
TEST(true, v.kind == CHAT_BOOL && v.i)
TEST(undefined, v.kind == CHAT_UNDEFINED)

static struct chat_value divides(struct chat_run *r, struct chat_value v,
                                 struct chat_value by, int64_t rest)
{
    v = chat_binary(r, CHAT_MOD, v, by);
    return r->rc == OK ? chat_bool(chat_equal(r, v, chat_int(rest, false))) : v;
}

static struct chat_value t_divisibleby(struct chat_run *r, struct chat_value v,
                                       const struct chat_args *a)
{
    return divides(r, v, a->v[0], 0);
}

static struct chat_value t_even(struct chat_run *r, struct chat_value v,
                                const struct chat_args *a)
{
    (void)a;
    return divides(r, v, chat_int(2, false), 0);
}

static struct chat_value t_odd(struct chat_run *r, struct chat_value v,
                               const struct chat_args *a)
{
    (void)a;
    return divides(r, v, chat_int(2, false), 1);
}

static const struct chat_builtin tests[] = {
    {"boolean", "", 0, t_boolean},
    {"callable", "", 0, t_callable},
    {"defined", "", 0, t_defined},
    {"divisibleby", "num", 1, t_divisibleby},
    {"==", "other", 1, t_eq},
    {"eq", "other", 1, t_eq},
    {"equalto", "other", 1, t_eq},
    {"even", "", 0, t_even},
    {"false", "", 0, t_false},
    {"float", "", 0, t_float},
    {">=", "other", 1, t_ge},
    {"ge", "other", 1, t_ge},
    {">", "other", 1, t_gt},
    {"greaterthan", "other", 1, t_gt},
    {"gt", "other", 1, t_gt},
    {"in", "seq", 1, t_in},
    {"integer", "", 0, t_integer},
    {"iterable", "", 0, t_iterable},
    {"<=", "other", 1, t_le},
    {"le", "other", 1, t_le},
    {"<", "other", 1, t_lt},
    {"lessthan", "other", 1, t_lt},
    {"lt", "other", 1, t_lt},
    {"mapping", "", 0, t_mapping},
    {"!=", "other", 1, t_ne},
    {"ne", "other", 1, t_ne},
    {"none", "", 0, t_none},
    {"number", "", 0, t_number},
    {"odd", "", 0, t_odd},
    {"sameas", "other", 1, t_sameas},
    {"sequence", "", 0, t_sequence},
    {"string", "", 0, t_string},
    {"true", "", 0, t_true},
    {"undefined", "", 0, t_undefined},
    {0},
};

const struct chat_builtin *chat_test_named(const char *name, size_t n)
{
    return chat_in_table(tests, name, n);
}

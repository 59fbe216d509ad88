/* Tables as people read them, and lines of CSV. */
#include "tests/support/test.h"

#include "base/json.h"
#include "base/table.h"

static const struct table_column columns[] = {
    {"name", -6}, {"rate", 7}, {"why", TABLE_OPEN}, {0}};

static void two_rows(struct table *t)
{
    table_head(t);
    table_cell(t, "a|b");
    table_cell(t, "%.2f ± %d", 1.5, 2);
    table_cell(t, "%s", "ok");
    table_cell(t, "longer than 6");
    table_cell(t, "%d", 3);
    table_cell(t, "%s", "");
}

static void expect(const char *want, bool markdown, const struct table_column *c,
                   void (*fn)(struct table *t))
{
    char *text = NULL;
    size_t n;
    struct table t = {.f = open_memstream(&text, &n), .markdown = markdown, .columns = c};

    fn(&t);
    fclose(t.f);
    assert_string_equal(text, want);
    free(text);
}

/* A sign of two bytes takes one column. */
TEST(text_is_in_columns)
{
    expect("name      rate why\n"
           "a|b    1.50 ± 2 ok\n"
           "longer than 6       3 \n",
           false, columns, two_rows);
}

TEST(markdown_has_bars)
{
    static const struct table_column closed[] = {
        {"name", -6}, {"rate", 7}, {"why", -3}, {0}};

    expect("| name   |    rate | why\n"
           "| ------ | ------: | ---\n"
           "| a\\|b    | 1.50 ± 2 | ok\n"
           "| longer than 6 |       3 | \n",
           true, columns, two_rows);
    expect("| name   |    rate | why |\n"
           "| ------ | ------: | --- |\n"
           "| a\\|b    | 1.50 ± 2 | ok  |\n"
           "| longer than 6 |       3 |     |\n",
           true, closed, two_rows);
}

TEST(markdown_without_widths_is_short)
{
    static const struct table_column plain[] = {
        {"name", 0}, {"rate", 0}, {"why", 0}, {0}};

    expect("| name | rate | why |\n"
           "|---|---|---|\n"
           "| a\\|b | 1.50 ± 2 | ok |\n"
           "| longer than 6 | 3 |  |\n",
           true, plain, two_rows);
}

TEST(csv_is_a_line_of_scalars)
{
    json_t *row = json_pack("{s:s, s:f, s:i, s:b, s:[i], s:n}", "text", "a, \"b\"", "x",
                            0.1, "n", 3, "yes", 1, "list", 1, "none");
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    table_csv(f, row, true);
    table_csv(f, row, false);
    fclose(f);
    assert_string_equal(text, "text,x,n,yes,none\na   b ,0.1,3,1,\n");
    free(text);
    json_decref(row);
}

/* Numbers as people read them. */
#include "tests/support/test.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "base/text_number.h"

TEST(numbers_have_no_exponent)
{
    static const struct {
        double x;
        int digits;
        const char *want;
    } cases[] = {{0, 4, "0"},
                 {-0.0, 4, "0"},
                 {1, 4, "1"},
                 {0.5, 6, "0.5"},
                 {1.23456, 4, "1.235"},
                 {120, 4, "120"},
                 {99.996, 4, "100"},
                 {12345.678, 4, "12346"},
                 {1e6, 2, "1000000"},
                 {-1.86e5, 4, "-186000"},
                 {0.000012, 4, "0.000012"},
                 {-0.00012345, 2, "-0.00012"},
                 {5.115e-14, 4, "0"},
                 {-5.115e-14, 4, "0"},
                 {1.5e12, 4, "1500000000000"},
                 {NAN, 4, "nan"},
                 {INFINITY, 4, "inf"},
                 {1e300, 4, "1e+300"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(TEXT_NUMBER(cases[i].x, cases[i].digits), cases[i].want);
}

/* Where printf needs no exponent it gives the same, and elsewhere the value is as near. */
TEST(numbers_are_those_of_printf)
{
    struct rng r;

    rng_init(&r, test_seed(), "numbers");
    for (int i = 0; i < 20000; i++) {
        const double x = (rng_f64(&r) - 0.5) * pow(10, (double)rng_below(&r, 16) - 6);
        char want[64], got[TEXT_NUMBER_BYTES];

        snprintf(want, sizeof(want), "%.4g", x);
        text_number(got, x, 4);
        assert_null(strchr(got, 'e'));
        if (!strchr(want, 'e'))
            assert_string_equal(got, want);
        else
            assert_true(fabs(strtod(got, NULL) - x) <= 0.5e-3 * fabs(x) + 0.5e-12);
    }
}

#include "experiments/study/support/tile_formula.h"

double study_tile_moved(const struct study_tile_product *p, int64_t ep, int64_t hp)
{
    double e = (double)p->e, h = (double)p->h, l = (double)p->l, x = (double)ep,
           y = (double)hp;

    return e / x * (h / y) * (l * y + l * x + y * x);
}

int study_tile_fits(const struct study_tile_product *p, int64_t ep, int64_t hp)
{
    int64_t vecs = hp / p->vec_cols;

    return ep * vecs + ep + vecs <= p->registers;
}

void study_tile_best(const struct study_tile_product *p, int64_t *ep, int64_t *hp)
{
    double least = 0;

    *ep = *hp = 0;
    for (int64_t y = p->vec_cols; study_tile_fits(p, 1, y); y += p->vec_cols)
        for (int64_t x = 1; x <= p->e && study_tile_fits(p, x, y); x++) {
            double moved = study_tile_moved(p, x, y);

            if (*ep == 0 || moved < least) {
                least = moved;
                *ep = x;
                *hp = y;
            }
        }
}

/* Teams whose threads are those of OpenMP's runtime. */
#define TEAM_KIND "openmp"
#include "tests/par/test_team.c"

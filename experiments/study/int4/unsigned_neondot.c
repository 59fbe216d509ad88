#define INT4_SIGNED 0
#define INT4_FORM   unsigned
#include "experiments/study/int4/int4_neondot.h"

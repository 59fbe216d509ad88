#define INT4_SIGNED 1
#define INT4_FORM   signed
#include "experiments/study/int4/int4_ref.h"

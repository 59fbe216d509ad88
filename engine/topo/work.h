/* topo/work.h - what one step of a phase asks of a machine: bytes and operations.
 *
 * Plain numbers, so that topo need not know models and plans need not know machines.
 * Whole-model figures; the ranks and threads share them.   Paper: Sandwich 5.3. */
#ifndef TOPO_WORK_H
#define TOPO_WORK_H

enum topo_phase { TOPO_PREFILL, TOPO_DECODE };

struct topo_work {
    double weight;          /* of this step in a trace: how often it happens, relative */
    double flop;            /* multiply and add count as two */
    double weight_bytes;    /* weights read */
    double kv_bytes;        /* keys and values read in a stream */
    double gather_bytes;    /* ... and read in pieces, as paged keys and values are */
    double attention_frac;  /* of flop and weight_bytes: the part split by KV heads; the
                                rest is split by units */
    double n_barriers;      /* of each rank's threads */
    double n_allreduces;    /* over the ranks; none where there is one */
    double allreduce_bytes; /* of each */
};

#define TOPO_WORKS_MAX 8
/* The steps of a phase over a trace; T(plan, trace) is the weighted mean of their times. */
struct topo_works {
    enum topo_phase phase;
    int n;
    struct topo_work v[TOPO_WORKS_MAX];
};

#endif

// SPDX-License-Identifier: Apache-2.0
/* Ops by their rows in ops.def: names and facts. */
#ifndef TSR_GRAPH_OP_H
#define TSR_GRAPH_OP_H
#include <stdbool.h>

typedef enum {
#define OP(id, ...) TSR_OP_##id,
#include "graph/ops.def"
#undef OP
  TSR_OPS
} tsr_op;

/* What passes need to know of an op beside its rules. */
enum tsr_op_facts {
  TSR_FACT_INTERNAL = 1,      /* made by short forms and passes; a graph file cannot call it */
  TSR_FACT_LOSS = 2,          /* one scalar, at which autodiff can begin */
  TSR_FACT_RANDOM = 4,        /* may draw other numbers for every microbatch */
  TSR_FACT_MATMUL = 8,        /* sums over a dimension of its own, not over rows */
  TSR_FACT_GRADIENT = 16,     /* its result is (part of) a parameter's gradient */
  TSR_FACT_SUMMANDS = 32,     /* treats every summand alike, so units may stay apart through it */
  TSR_FACT_COLLECTIVE = 64,   /* moves data between the members of the axis in its attributes */
  TSR_FACT_LOCAL_SPLIT = 128, /* takes a rank's part along that axis, without moving data */
  TSR_FACT_EVERYWHERE = 256,  /* every stage of a pipeline runs it, on the inputs that it has */
  TSR_FACT_SIZED = 512,       /* the device defines the size of its first output */
  TSR_FACT_ADDS = 1024, /* its first output is its last input's bytes, where it has that one */
  TSR_FACT_KEEPS_DTYPE = 2048, /* its result has its input's dtype, whatever that is */
  TSR_FACT_WIDE = 4096,        /* reads and writes f32 in every precision */
  TSR_FACT_STATISTICS = 8192,  /* outputs after the first are numbers for its gradient, in f32 */
  TSR_FACT_KEPT = 16384,       /* its output stays from one run of the program to the next, for all
                                  of a process's programs that have it; a run writes a part of it */
  TSR_FACT_OVERWRITES = 32768, /* its output may be its first input's bytes: element i needs no more
                                  of that than element i */
  TSR_FACT_CHEAP = 65536, /* its gradient needs its inputs anyway, and it goes through them once */
  TSR_FACT_MAPS = 131072, /* element i of its output needs element i of each input alone, but it
                             must not overwrite one of them */
  TSR_FACT_SHAPED = 262144,      /* reads the last input for its shape alone */
  TSR_FACT_UPDATE = 524288,      /* writes its first input, a parameter */
  TSR_FACT_ATTENTION = 1048576,  /* attention or a part of it; its attributes begin with head_dim */
  TSR_FACT_ROUTED = 2097152,     /* reads or writes rows of experts by their plan */
  TSR_FACT_F32_RESULT = 4194304, /* its result is f32 in every precision, and it reads parameters as
                                    they are stored */
  TSR_FACT_F32_INPUTS = 8388608, /* it reads f32 in every precision */
  TSR_FACT_F32_OUTPUT = 16777216 /* its result is f32 in every precision, whatever it reads */
};
unsigned tsr_op_facts(tsr_op op);
/* Whether an op moves or splits a tensor over the axis in its attributes. */
static inline bool tsr_op_moves(tsr_op op) {
  return tsr_op_facts(op) & (TSR_FACT_COLLECTIVE | TSR_FACT_LOCAL_SPLIT);
}
/* Whether a collective adds its members' tensors. */
static inline bool tsr_op_sums_members(tsr_op op) {
  return op == TSR_OP_ALL_REDUCE || op == TSR_OP_REDUCE_SCATTER || op == TSR_OP_REDUCE;
}
/* Whether it copies between the device's memory and the host's (schedule/offload.h). */
static inline bool tsr_op_copies_to_or_from_host(tsr_op op) {
  return op == TSR_OP_OFFLOAD || op == TSR_OP_RELOAD;
}
/* The input that an op reads for its shape alone, or -1. */
static inline int tsr_op_shape_input(tsr_op op, int inputs_count) {
  return tsr_op_facts(op) & TSR_FACT_SHAPED ? inputs_count - 1 : -1;
}

/* The input that an op has for its gradient's sake and does not read, or -1: a loss's logits. */
static inline int tsr_op_gradient_input(tsr_op op) { return op == TSR_OP_CE_LOSS ? 0 : -1; }

/* The unary op whose function an op applies: a unary op itself, a gated one and its gradient to the
 * gate. */
tsr_op tsr_op_function(tsr_op op);

int tsr_op_outputs(tsr_op op);
const char *tsr_op_name(tsr_op op);
/* What messages about a graph file call it: ops that no file writes by what they are made for. */
const char *tsr_op_title(tsr_op op);

#endif

/* Ops by their rows in ops.def: names, outputs, facts. */
#include "graph/infer.h"

const char *tsr_op_name(tsr_op op) {
  static const char *const names[] = {
#define OP(id, name, ...) name,
#include "graph/ops.def"
#undef OP
  };
  return names[op];
}

const char *tsr_op_title(tsr_op op) {
  static const char *const titles[TSR_OPS] = {
      [TSR_OP_CE_STATS] = "cross_entropy",
      [TSR_OP_CE_LOSS] = "cross_entropy",
      [TSR_OP_SQUARED_ERROR] = "mse",
      [TSR_OP_LINEAR_DW] = "the gradient of linear",
      [TSR_OP_EMBEDDING_DW] = "the gradient of embedding",
      [TSR_OP_SUM_TO] = "the gradient of a broadcast",
      [TSR_OP_NORM_DW] = "the gradient of a norm",
      [TSR_OP_ATTENTION_DX] = "the gradient of attention"};
  return titles[op] ? titles[op] : tsr_op_name(op);
}

int tsr_op_outputs(tsr_op op) {
  static const int outputs[] = {
#define OP(id, name, min, max, outputs, ...) outputs,
#include "graph/ops.def"
#undef OP
  };
  return outputs[op];
}

unsigned tsr_op_facts(tsr_op op) {
  enum {
    INTERNAL = TSR_FACT_INTERNAL,
    LOSS = TSR_FACT_LOSS,
    RANDOM = TSR_FACT_RANDOM,
    PRODUCT = TSR_FACT_PRODUCT,
    GRADIENT = TSR_FACT_GRADIENT,
    SUMMANDS = TSR_FACT_SUMMANDS,
    COLLECTIVE = TSR_FACT_COLLECTIVE,
    LOCAL_CUT = TSR_FACT_LOCAL_CUT,
    EVERYWHERE = TSR_FACT_EVERYWHERE,
    SIZED = TSR_FACT_SIZED,
    ADDS = TSR_FACT_ADDS,
    KEEPS_DTYPE = TSR_FACT_KEEPS_DTYPE,
    WIDE = TSR_FACT_WIDE,
    STATISTICS = TSR_FACT_STATISTICS,
    KEPT = TSR_FACT_KEPT,
    OVERWRITES = TSR_FACT_OVERWRITES,
    CHEAP = TSR_FACT_CHEAP
  };
  static const unsigned facts_of[] = {
#define OP(id, name, min, max, outputs, attrs, facts, ...) facts,
#include "graph/ops.def"
#undef OP
  };
  return facts_of[op];
}

int tsr_op_shape_input(tsr_op op, int inputs_count) {
  switch ((int)op) {
  case TSR_OP_LINEAR_DW:
  case TSR_OP_EMBEDDING_DW:
    return 2;
  case TSR_OP_SUM_TO:
    return 1;
  case TSR_OP_NORM_DW:
    return inputs_count - 1;
  default:
    return -1;
  }
}

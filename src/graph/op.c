// SPDX-License-Identifier: Apache-2.0
#include "graph/op.h"
#include <stddef.h>

/* A row's name, and its title where that is another one. */
static const char *const names[][2] = {
#define NAMES(name, title) name, title
#define OP(id, name, ...) {name},
#include "graph/ops.def"
#undef OP
};

const char *tsr_op_name(tsr_op op) { return names[op][0]; }
const char *tsr_op_title(tsr_op op) { return names[op][1] ? names[op][1] : names[op][0]; }

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
    PRODUCT = TSR_FACT_MATMUL,
    GRADIENT = TSR_FACT_GRADIENT,
    SUMMANDS = TSR_FACT_SUMMANDS,
    COLLECTIVE = TSR_FACT_COLLECTIVE,
    LOCAL_SPLIT = TSR_FACT_LOCAL_SPLIT,
    EVERYWHERE = TSR_FACT_EVERYWHERE,
    SIZED = TSR_FACT_SIZED,
    ADDS = TSR_FACT_ADDS,
    KEEPS_DTYPE = TSR_FACT_KEEPS_DTYPE,
    WIDE = TSR_FACT_WIDE,
    STATISTICS = TSR_FACT_STATISTICS,
    KEPT = TSR_FACT_KEPT,
    OVERWRITES = TSR_FACT_OVERWRITES,
    CHEAP = TSR_FACT_CHEAP,
    MAPS = TSR_FACT_MAPS,
    SHAPED = TSR_FACT_SHAPED,
    UPDATE = TSR_FACT_UPDATE,
    ATTENTION = TSR_FACT_ATTENTION,
    ROUTED = TSR_FACT_ROUTED,
    F32_RESULT = TSR_FACT_F32_RESULT,
    F32_INPUTS = TSR_FACT_F32_INPUTS,
    F32_OUTPUT = TSR_FACT_F32_OUTPUT
  };
  static const unsigned facts_of[] = {
#define OP(id, name, min, max, outputs, attrs, facts, ...) facts,
#include "graph/ops.def"
#undef OP
  };
  return facts_of[op];
}

tsr_op tsr_op_function(tsr_op op) {
  static const tsr_op functions[TSR_OPS] = {
#define OP(...)
#define UNARY(id, name) [TSR_OP_##id] = TSR_OP_##id,
#define GATED(id, name, f) [TSR_OP_##id] = TSR_OP_##f,
#define GATED_DX(id, name, f) [TSR_OP_##id##_DX] = TSR_OP_##f,
#include "graph/ops.def"
#undef OP
  };
  return functions[op];
}

// SPDX-License-Identifier: Apache-2.0
/* Typed attributes of ops: attrs.def's sets as structs, and as tables of fields for what treats all
 * of them alike (calls of graph files, printing, comparison). */
#ifndef TSR_GRAPH_ATTRS_H
#define TSR_GRAPH_ATTRS_H
#include "base/axis.h"
#include "graph/op.h"
#include <stddef.h>
#include <stdint.h>

enum { TSR_DIMS_MAX = 5 };

/* How parameters are stored: in f32; or in bf16 alone, and updates are rounded by chance, or beside
 * what their rounding has lost so far (kernels.h, tsr_rounding). */
typedef enum { TSR_STORE_F32, TSR_STORE_STOCHASTIC, TSR_STORE_KAHAN } tsr_param_store;

/* How a written-out collective's messages travel between processes: as the run chooses, or by NCCL,
 * without which the graph is refused. */
typedef enum { TSR_OP_TRANSPORT_AUTO, TSR_OP_TRANSPORT_NCCL } tsr_op_transport;

/* Over which tokens the loss that balances experts counts choices: those of each sequence, those of
 * the step before, or those of a forward pass, of all layers together (Hugging Face's). */
typedef enum { TSR_BALANCE_SEQUENCE, TSR_BALANCE_STEP, TSR_BALANCE_FORWARD } tsr_balance_tokens;

/* How a GEMM quantises its operands to FP8 (base/fp8_layout.h): bits beside TSR_FP8_ON. Without it,
 * not at all. Activations and weights are E4M3, gradients too without TSR_FP8_E5M2_GRADIENTS.
 * Scales are powers of two without TSR_FP8_F32_SCALES. */
typedef enum {
  TSR_FP8_OFF = 0,
  TSR_FP8_ON = 1,
  TSR_FP8_E5M2_GRADIENTS = 2,
  TSR_FP8_F32_SCALES = 4
} tsr_fp8_recipe;

typedef struct {
  int count;
  int64_t size[TSR_DIMS_MAX];
} tsr_size_list;

/* The numbers are an arena's. */
typedef struct {
  int count;
  const double *number;
} tsr_number_list;

/* X(type of attrs.def, type in C). What a call may give for each:
 *   axis         an axis's name
 *   transport    auto or nccl
 *   balance      sequence, step or forward
 *   dim          a whole number, from the end where it is negative and the first input has it
 *   i64, flag    a whole number; a flag is whether it is not 0
 *   positions    a whole number of [0, 2^53)
 *   f64          any number
 *   nonneg       one of 0 at least
 *   positive     one above 0
 *   fraction     one of [0, 1)
 *   sizes        a list of whole numbers
 *   numbers      a list of any numbers, which may be empty
 *   op, store, fp8   nothing: passes make them */
#define TSR_ATTR_TYPES(X)                                                                          \
  X(axis, tsr_axis)                                                                                \
  X(transport, tsr_op_transport)                                                                   \
  X(balance, tsr_balance_tokens)                                                                   \
  X(dim, int)                                                                                      \
  X(i64, int64_t)                                                                                  \
  X(flag, bool)                                                                                    \
  X(positions, int64_t)                                                                            \
  X(f64, double)                                                                                   \
  X(nonneg, double)                                                                                \
  X(positive, double)                                                                              \
  X(fraction, double)                                                                              \
  X(sizes, tsr_size_list)                                                                          \
  X(numbers, tsr_number_list)                                                                      \
  X(op, tsr_op)                                                                                    \
  X(store, tsr_param_store)                                                                        \
  X(fp8, tsr_fp8_recipe)

typedef enum {
#define TSR_ATTR_TYPE(name, c) TSR_ATTR_##name,
  TSR_ATTR_TYPES(TSR_ATTR_TYPE)
#undef TSR_ATTR_TYPE
} tsr_attr_type;

#define TSR_ATTR_TYPE(name, c) typedef c tsr_attr_##name;
TSR_ATTR_TYPES(TSR_ATTR_TYPE)
#undef TSR_ATTR_TYPE

/* struct tsr_<set>_attrs */
#define F(name, type, value) tsr_attr_##type name;
#define REQUIRED(name, type) tsr_attr_##type name;
#define INTERNAL(name, type, value) tsr_attr_##type name;
#define HIDDEN(name, type, value) tsr_attr_##type name;
#define ATTRS(set, ...)                                                                            \
  typedef struct {                                                                                 \
    __VA_ARGS__                                                                                    \
  } tsr_##set##_attrs;
#include "graph/attrs.def"
#undef ATTRS
#undef F
#undef REQUIRED
#undef INTERNAL
#undef HIDDEN

/* One op's attributes: the member that is named as its set. */
typedef union {
#define ATTRS(set, ...) tsr_##set##_attrs set;
#include "graph/attrs.def"
#undef ATTRS
} tsr_attrs;

typedef enum {
  TSR_ATTRS_none, /* of ops without attributes */
#define ATTRS(set, ...) TSR_ATTRS_##set,
#include "graph/attrs.def"
#undef ATTRS
  TSR_ATTR_SETS
} tsr_attr_set_id;

typedef struct {
  const char *name;
  tsr_attr_type type;
  size_t offset; /* in tsr_attrs */
  bool required;
  bool internal; /* no call can set it */
  bool hidden;   /* and it is not printed */
} tsr_attr_field;

typedef struct {
  int count;
  const tsr_attr_field *fields;
  const tsr_attrs *defaults; /* where a field has none, zero */
} tsr_attr_set;

static inline bool tsr_attr_type_is_word(tsr_attr_type type) {
  return type == TSR_ATTR_axis || type == TSR_ATTR_transport || type == TSR_ATTR_balance;
}

const tsr_attr_set *tsr_attr_set_of(tsr_attr_set_id id);
const tsr_attr_set *tsr_op_attrs(tsr_op op);

/* How many features of a head are turned. */
static inline int64_t tsr_rope_rotary(const tsr_rope_attrs *rope) {
  return rope->rotary_dim ? rope->rotary_dim : rope->head_dim;
}

/* Whether attributes of that name are words (an axis, a transport), or lists of numbers, in
 * whatever set. */
bool tsr_attr_is_word(const char *name);
bool tsr_attr_is_numbers(const char *name);

/* A field as a number, and from one (what does not fit becomes the nearest that does). Not of
 * lists. */
double tsr_attr_number(const tsr_attr_field *field, const tsr_attrs *attrs);
void tsr_attr_set_number(const tsr_attr_field *field, tsr_attrs *attrs, double number);
/* Whether all fields of an op's set agree. */
bool tsr_attrs_equal(tsr_op op, const tsr_attrs *a, const tsr_attrs *b);

#endif

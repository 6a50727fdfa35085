// SPDX-License-Identifier: Apache-2.0
/* Shared by the files that bind tasks to the CPU's kernels. */
#ifndef TSR_DEVICE_CPU_OPS_H
#define TSR_DEVICE_CPU_OPS_H
#include "base/sequence_layout.h"
#include "base/reduction_tree.h"
#include "device/arguments.h"
#include "device/cpu/cpu.h"

/* Operands in half precision that a kernel of the level computes with as they are, a bit of each,
 * and not with the f32 copies, which are planned for levels whose kernels cannot. */
typedef struct {
  unsigned inputs, outputs;
} cpu_half_operands;
/* Tasks that update many parameters have more operands than there are bits, and none of these. */
static inline bool cpu_half_has(unsigned operands, int i) { return i < 32 && operands >> i & 1; }

typedef struct {
  tsr_task_call call;
  const tsr_kernels *k;
  int threads, round;
  bool stores_half; /* the op's stores_half is true of the task */
  cpu_half_operands half;
  tsr_f16_losses *losses; /* of the outputs, counted; NULL: they are not */
  _Atomic uint64_t *nan_scores;
  const tsr_update_hashes *hashes; /* NULL: none are wanted */
} cpu_call;

enum { CPU_RANGES_MAX = 4 };

/* One op on the CPU: for each round, all parts of `before`, in any order, then all ranges of `run`;
 * in the end `after`, once. */
typedef struct {
  int64_t (*items)(const tsr_task *task);
  int64_t (*round_items)(const tsr_task *task, int round); /* NULL: each round has all items */
  int64_t (*scratch)(
      const tsr_kernels *k, const tsr_program *program, const tsr_task *task,
      int threads); /* bytes, or NULL */
  /* bytes of the first output, of an op with TSR_FACT_SIZED */
  int64_t (*output)(const tsr_kernels *k, const tsr_program *program, const tsr_task *task);
  int (*rounds)(const tsr_task *task); /* NULL: 1 */
  /* whether items are strips of packed GEMMs (TSR_GEMM_ROWS, TSR_GEMM_COLUMNS); NULL: they are not
   */
  bool (*strips)(const tsr_task *task);
  void (*before)(const cpu_call *call, int part, int parts);
  void (*run)(const cpu_call *call, int64_t begin, int64_t end, int thread);
  void (*after)(const cpu_call *call);
  /* ranges that each thread is given, CPU_RANGES_MAX or less; 0: one, and `thread` is whose */
  int ranges;
  bool takes_half; /* reads and writes half precision; other ops are given f32 copies */
  /* whether the op reads an input in half precision all the same; NULL: none */
  bool (*takes_half_input)(const tsr_task *task, int input);
  /* whether the op stores its output in half precision itself, and not the f32 copy, which is
   * planned for levels whose kernels cannot; NULL: it does not */
  bool (*stores_half)(const cpu_call *call);
  cpu_half_operands (*half)(const cpu_call *call); /* NULL: none */
} cpu_op;

/* Of a task that is no collective, which comm/ runs. */
const cpu_op *cpu_op_of(const tsr_task *task);

/* The operands as the kernel has them. */
static inline float *cpu_in(const cpu_call *c, int i) {
  const tsr_task *t = c->call.task;
  bool half = cpu_half_has(c->half.inputs, i);
  return tsr_operand_address(&c->call, half ? &t->inputs[i] : &tsr_kernel_inputs(t)[i]);
}
/* The type of an input of a GEMM. */
static inline tsr_element cpu_element(const cpu_call *c, int i) {
  tsr_dtype type = tsr_kernel_inputs(c->call.task)[i].dtype;
  if (tsr_dtype_is_quantized(type)) return TSR_ELEMENT_CODES;
  return type == TSR_BF16 ? TSR_ELEMENT_BF16 : type == TSR_F16 ? TSR_ELEMENT_F16 : TSR_ELEMENT_F32;
}
/* Input i from element `first` on, as a matrix with strides rs and cs. What is quantised is rounded
 * to the type of the task's first input, as its working copy would be. */
static inline tsr_matrix
cpu_matrix(const cpu_call *c, int i, int64_t first, int64_t rs, int64_t cs) {
  tsr_matrix m = {cpu_in(c, i), rs, cs, cpu_element(c, i), .first = first};
  m.bf16 = c->call.task->inputs[i].dtype == TSR_BF16;
  if (m.type != TSR_ELEMENT_CODES) return m;
  tsr_dtype rounds = c->call.task->inputs[0].dtype;
  m.quantized = (tsr_quantized){
      .data = m.data, .layout = tsr_tensor_quantized_layout(&c->call.task->inputs[i])};
  if (tsr_dtype_is_half(rounds))
    m.quantized.rounds = rounds == TSR_BF16 ? TSR_ELEMENT_BF16 : TSR_ELEMENT_F16;
  return m;
}
static inline const int32_t *cpu_tokens(const cpu_call *c, int i) {
  return (const int32_t *)(const void *)cpu_in(c, i);
}
static inline float *cpu_out(const cpu_call *c, int i) {
  const tsr_task *t = c->call.task;
  bool half = cpu_half_has(c->half.outputs, i);
  return tsr_operand_address(&c->call, half ? &t->outputs[i] : &tsr_kernel_outputs(t)[i]);
}
static inline void *cpu_scratch(const cpu_call *c) { return tsr_task_scratch(&c->call); }
static inline const tsr_attrs *cpu_attrs(const cpu_call *c) { return tsr_task_attrs(&c->call); }
static inline float cpu_scalar(const cpu_call *c, int input, tsr_step_scalar which) {
  return cpu_in(c, input)[which];
}

/* ---- attention.c ---- */

cpu_half_operands cpu_attention_half(const cpu_call *c);

/* ---- cast.c: elements [begin, end) ---- */

void cpu_cast_from_half(
    const tsr_kernels *k, tsr_dtype from, float *out, const void *x, int64_t begin, int64_t end);
void cpu_cast_to_half(
    const tsr_kernels *k, tsr_dtype to, void *out, const float *x, int64_t begin, int64_t end);
/* A part of the casts before and after a task's kernel. */
void cpu_cast_inputs(const cpu_call *call, int part, int parts);
void cpu_cast_outputs(const cpu_call *call, int part, int parts);

/* Rounds elements [begin, end) of a leaf or of a sum of two, which stay in f32; nothing where the
 * task's sum does not round. */
void cpu_round_sum(const cpu_call *call, float *x, int64_t begin, int64_t end);

/* Adds the leaves of one block of the task's sum, made one after the other by `make`, in the tree's
 * order. The result ends in `out`; `scratch` holds the other stack entries, `stride` floats apart.
 * Only elements [begin, end) of each are touched by the additions. */
typedef void
cpu_make_leaf(const cpu_call *c, void *context, int64_t block, int64_t leaf, float *into);
void cpu_add_leaves(
    const cpu_call *c, int64_t block, float *out, float *scratch, int64_t stride, int64_t begin,
    int64_t end, cpu_make_leaf *make, void *context);

static inline int64_t cpu_items_elements(const tsr_task *t) {
  return tsr_tensor_elements(&t->outputs[0]);
}
static inline int64_t cpu_items_rows(const tsr_task *t) { return tsr_tensor_rows(&t->outputs[0]); }

/* The functions of ops' tasks; `cpu_collective` stands for those of collectives. */
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, lower, cost)         \
  extern const cpu_op cpu_##lower;
#include "graph/ops.def"
#undef OP

/* A fused task's (schedule/fuse.h). */
extern const cpu_op cpu_linear_cross_entropy;
int64_t cpu_tile_rows(int64_t columns);

#endif

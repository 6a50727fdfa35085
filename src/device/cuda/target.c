// SPDX-License-Identifier: Apache-2.0
/* What a CUDA GPU computes and fuses, in which types, with how much scratch; without a GPU or
 * nvcc. */
#include "device/cuda/classifier_tiles.h"
#include "device/cuda/plugin_abi.h"
#include "device/cuda/scratch.h"

/* ---- tasks ---- */

/* Whether the function that a task applies to elements has a kernel; true where it applies none. */
static bool has_function(const tsr_program *p, const tsr_task *t) {
  static const bool applies_one[TSR_OPS] = {
      [TSR_OP_UNARY_DX] = true,
#define OP(...)
#define UNARY(id, ...) [TSR_OP_##id] = true,
#define GATED(id, ...) [TSR_OP_##id] = true,
#define GATED_DX(id, ...) [TSR_OP_##id##_DX] = true,
#include "graph/ops.def"
#undef OP
  };
  const tsr_node *n = &p->graph->nodes[t->node];
  tsr_op op = t->op == TSR_OP_UNARY_DX ? n->attr.unary_dx.op : t->op;
  return !applies_one[t->op] || tsr_cuda_has_unary(tsr_unary_of(op));
}

/* Which input of attention has the sinks; -1: none. */
static int sinks_of(const tsr_node *n) {
  switch ((int)n->op) {
  case TSR_OP_ATTENTION:
  case TSR_OP_DOCUMENT_ATTENTION:
    return tsr_node_sinks(n);
  case TSR_OP_ATTENTION_CACHED:
    return n->inputs_count == 7 ? 6 : -1;
  case TSR_OP_RING_OUT:
    return n->inputs_count == 4 ? 3 : -1;
  case TSR_OP_ATTENTION_SINKS_DX:
    return 3;
  default:
    return -1;
  }
}

/* Attention over heads that are too wide has no kernel. */
static bool has_head(const tsr_program *p, const tsr_task *t) {
  const tsr_node *n = &p->graph->nodes[t->node];
  if (!(tsr_op_facts(t->op) & TSR_FACT_ATTENTION)) return true;
  return n->attr.attention.head_dim <= TSR_CUDA_HEAD_MAX &&
         tsr_node_value_head(n) <= TSR_CUDA_HEAD_MAX;
}

static bool supports(const tsr_target *target, const tsr_program *p, const tsr_task *t) {
  (void)target;
  bool runs = t->op != TSR_OP_ADAPTED_SQUARES && t->op != TSR_OP_DIVIDE_ROOT;
  return runs && has_function(p, t) && has_head(p, t);
}

/* Optimizer state in a file is the host's to update. */
static bool
supports_without_state(const tsr_target *target, const tsr_program *p, const tsr_task *t) {
  return !tsr_task_has_state(t) && supports(target, p, t);
}

/* ---- types. In half precision what is partial over ranks is f32, and so are a loss and its
 * gradient; kernels that take one type are given copies of what they read beside half tensors:
 * GEMMs in half precision, for the tensor cores' sake, all others in f32. ---- */

static bool is_matmul(tsr_op op) {
  return tsr_op_facts(op) & TSR_FACT_MATMUL || op == TSR_OP_LINEAR_DW ||
         op == TSR_OP_EXPERT_LINEAR_DW;
}

/* Ops whose kernels take several types. */
static bool takes_mixed(tsr_op op) {
  switch ((int)op) {
  case TSR_OP_EMBEDDING:
  case TSR_OP_EMBEDDING_DW:
  case TSR_OP_CAST:
  case TSR_OP_COMBINE_EXPERTS:
  case TSR_OP_COMBINE_EXPERTS_DX:
  case TSR_OP_PERMUTE_EXPERTS_DX:
    return true;
  case TSR_OP_CONCAT:
    return false;
  }
  /* What ring attention passes on beside queries, keys and values is always f32. */
  if (op >= TSR_OP_RING_ATTENTION && op <= TSR_OP_RING_DKV_OUT) return true;
  return tsr_op_facts(op) & (TSR_FACT_WIDE | TSR_FACT_KEEPS_DTYPE | TSR_FACT_UPDATE);
}

/* What moves values without computing any. */
static bool moves(tsr_op op) {
  return tsr_op_is_collective(op) || tsr_op_facts(op) & TSR_FACT_KEEPS_DTYPE;
}

/* Statistics of rows and sums of attention are f32 whatever the rest is, wherever they come from.
 */
static bool is_always_f32(const tsr_program *p, const tsr_tensor *t) {
  const tsr_graph *g = p->graph;
  int value = t->value;
  while (g->values[value].kind == TSR_VALUE_NODE && moves(g->nodes[g->values[value].node].op))
    value = g->nodes[g->values[value].node].inputs[0];
  const tsr_value *v = &g->values[value];
  if (v->kind != TSR_VALUE_NODE) return v->kind != TSR_VALUE_PARAM && v->kind != TSR_VALUE_INPUT;
  const tsr_node *n = &g->nodes[v->node];
  unsigned facts = tsr_op_facts(n->op);
  return facts & TSR_FACT_SIZED || (facts & TSR_FACT_STATISTICS && n->outputs[0] != value);
}

static bool has_kernel_type(const tsr_program *p, const tsr_task *t, int input) {
  const tsr_tensor *x = &t->inputs[input];
  return x->dtype != TSR_I32 && x->segment != TSR_SEGMENT_ABSENT &&
         input != tsr_task_shape_input(t) && !is_always_f32(p, x) &&
         input != sinks_of(&p->graph->nodes[t->node]);
}

static bool writes_kernel_type(const tsr_program *p, const tsr_task *t, int output) {
  if (is_matmul(t->op) || tsr_op_facts(t->op) & TSR_FACT_GRADIENT) return false;
  return !is_always_f32(p, &t->outputs[output]);
}

/* Whether operands of the kernel's type are of a half type and of f32; *ret_half: which. */
static bool is_mixed(const tsr_program *p, const tsr_task *t, tsr_dtype *ret_half) {
  bool wide = false, half = false;
  for (int i = 0; i < t->inputs_count + t->outputs_count; i++) {
    bool input = i < t->inputs_count;
    int at = input ? i : i - t->inputs_count;
    if (!(input ? has_kernel_type(p, t, at) : writes_kernel_type(p, t, at))) continue;
    tsr_dtype dtype = input ? t->inputs[at].dtype : t->outputs[at].dtype;
    if (tsr_dtype_is_half(dtype)) half = true, *ret_half = dtype;
    else wide = true;
  }
  return wide && half;
}

static void
kernel_types(const tsr_program *p, const tsr_task *t, tsr_dtype *inputs, tsr_dtype *outputs) {
  tsr_dtype half = TSR_F32;
  int sinks = sinks_of(&p->graph->nodes[t->node]);
  bool rounds = t->fused == TSR_FUSED_LOGITS_GRADIENT || t->fused == TSR_FUSED_LINEAR_CROSS_ENTROPY;
  if (rounds) return; /* it rounds what its GEMMs read */
  if (t->fp8) return; /* operands of any types are quantised */
  bool mixed = !takes_mixed(t->op) && is_mixed(p, t, &half);
  for (int i = 0; i < t->inputs_count; i++)
    if (tsr_dtype_is_quantized(inputs[i])) inputs[i] = half; /* GEMMs read a decoded copy */
  if (sinks >= 0) inputs[sinks] = TSR_F32;
  if (!mixed) return;
  tsr_dtype dtype = is_matmul(t->op) ? half : TSR_F32;
  for (int i = 0; i < t->inputs_count; i++)
    if (has_kernel_type(p, t, i)) inputs[i] = dtype;
  for (int i = 0; i < t->outputs_count; i++)
    if (writes_kernel_type(p, t, i)) outputs[i] = dtype;
}

/* ---- sizes ---- */

static int64_t scratch(const tsr_target *target, const tsr_program *p, const tsr_task *t) {
  (void)target;
  bool tiles = t->fused == TSR_FUSED_LINEAR_CROSS_ENTROPY;
  return tiles ? cuda_classifier_bytes(p, t) : cuda_scratch_bytes(p, t);
}

/* The CPU pads rows of partial results; its size is enough. */
static int64_t output_bytes(const tsr_target *target, const tsr_program *p, const tsr_task *t) {
  return target->host->output_bytes(target->host, p, t);
}

tsr_target tsr_cuda_target(const tsr_target *host, bool fast, bool offloads) {
  unsigned fuses = 1u << TSR_FUSED_EPILOGUE | 1u << TSR_FUSED_SUM_NORM |
                   1u << TSR_FUSED_NORM_DX_SUM | 1u << TSR_FUSED_UPDATES | 1u << TSR_FUSED_NORMS |
                   1u << TSR_FUSED_CASTS | 1u << TSR_FUSED_LOGITS_GRADIENT |
                   1u << TSR_FUSED_LINEAR_CROSS_ENTROPY | 1u << TSR_FUSED_GEMMS;
  if (offloads) fuses &= ~(1u << TSR_FUSED_UPDATES);
  return (tsr_target){
      .host = host,
      .fuses = fuses,
      .epilogues =
          TSR_EPILOGUE_BIAS | TSR_EPILOGUE_RESIDUAL | TSR_EPILOGUE_GELU | TSR_EPILOGUE_HALF,
      .exact = !fast,
      .state_in_file = offloads,
      .tile_rows = cuda_tile_rows,
      .supports = offloads ? supports_without_state : supports,
      .kernel_types = kernel_types,
      .scratch = scratch,
      .output_bytes = output_bytes};
}

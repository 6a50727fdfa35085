// SPDX-License-Identifier: Apache-2.0
/* The graph: what is computed, as nodes and values, without devices and (before the placement pass)
 * without collectives.
 *
 * Values and nodes stand in arrays and refer to each other by index; nodes are in an order in which
 * every input is ready. A value's shape is the global one of one microbatch; its placement says
 * which part of it each rank holds. Everything lives in the graph's arena and carries a name and
 * the place in the YAML it came from. */
#ifndef TSR_GRAPH_GRAPH_H
#define TSR_GRAPH_GRAPH_H
#include "base/arena.h"
#include "base/axis.h"
#include "base/diag.h"
#include "base/reduction_tree.h"
#include "base/quantized_layout.h"
#include "base/text.h"
#include "graph/attrs.h"
#include "graph/padding.h"
#include <stdint.h>

typedef enum { TSR_F32, TSR_I32, TSR_BF16, TSR_F16, TSR_NF4, TSR_INT8 } tsr_dtype;
/* NF4 and INT8 are those of base/quantized_layout.h. */
static inline bool tsr_dtype_is_quantized(tsr_dtype d) { return d == TSR_NF4 || d == TSR_INT8; }
static inline tsr_quantized_format tsr_dtype_format(tsr_dtype d) {
  return d == TSR_INT8 ? TSR_QUANTIZED_INT8 : TSR_QUANTIZED_NF4;
}
int64_t tsr_dtype_bytes(tsr_dtype dtype); /* of an element; not of a quantised one */
/* Of so many elements; of quantised ones those of a matrix that is one unit. */
int64_t tsr_dtype_size(tsr_dtype dtype, int64_t elements);
static inline bool tsr_dtype_is_half(tsr_dtype d) { return d == TSR_BF16 || d == TSR_F16; }
const char *tsr_dtype_name(tsr_dtype dtype);
enum { TSR_OUTPUTS_MAX = 3 };
enum { TSR_GRAPH_OUTPUTS_MAX = 16 }; /* that a graph file may ask for */

typedef enum {
  TSR_VALUE_INPUT,        /* written anew for every microbatch: tokens, targets, features */
  TSR_VALUE_STEP_SCALARS, /* a few numbers written for every step: tsr_step_scalar */
  TSR_VALUE_CONST,        /* computed once before the first step: a rope table */
  TSR_VALUE_PARAM,
  TSR_VALUE_STATE, /* optimizer state, zero at the start */
  TSR_VALUE_NODE   /* a node's output */
} tsr_value_kind;

typedef enum {
  TSR_INIT_ZEROS,
  TSR_INIT_ONES,
  TSR_INIT_NORMAL,
  TSR_INIT_UNIFORM,
  TSR_INIT_ROPE,
  TSR_INIT_PADDING_MASK /* 1 where an index of the last dimension is real, 0 in its padding */
} tsr_init_kind;
typedef struct {
  tsr_init_kind kind;
  double a, b; /* normal: mean, std; uniform: low, high; rope: head_dim, theta; mask: real,
                        blocks */
  /* rope: factor (0 = none), low_freq, high_freq, original_context; YaRN's factor (0 = none),
   * beta_fast, beta_slow, truncate; what cos and sin are multiplied by; what all frequencies are
   * divided by (0 = 1), and what each is (NULL = 1) */
  double scaling[10];
  const double *factors;
} tsr_init;

/* What dimension 0 has to do with a mixture of experts. experts 0: nothing. choices 0: it is the
 * experts, of their weights and of what is made of those. Else it is rows of experts: each token
 * chooses so many of them, and there is a row for each choice. Where ranks share the experts out
 * (TSR_ROUTED), a rank has the rows of its own experts, in room for the most that there can be,
 * with zeros behind the last. With a capacity an expert has at most `slots` rows of each batch
 * unit, and the other choices of it are dropped. */
typedef struct {
  int64_t experts, choices;
  int64_t tokens;             /* of a microbatch, of which the rows are */
  int64_t slots, unit_tokens; /* 0: no choice is dropped; tokens of a batch unit */
} tsr_routed;
enum { TSR_COUNT_DIGIT = 4096 };
enum { TSR_EXPERTS_MAX = 65536 }; /* of a mixture; plans and proofs take time for each of them */
static inline bool tsr_routed_is_rows(tsr_routed r) { return r.choices > 0; }
static inline bool tsr_routed_is_weights(tsr_routed r) { return r.experts > 0 && !r.choices; }
/* Room for the rows that so many tokens have of `here` of the experts. */
static inline int64_t tsr_routed_rows(tsr_routed r, int64_t tokens, int64_t here) {
  int64_t most = tokens * (r.choices < here ? r.choices : here);
  int64_t slots = r.slots ? tokens / r.unit_tokens * r.slots * here : most;
  return slots < most ? slots : most;
}

/* What a parameter is besides its shape. */
typedef struct {
  const char *name;    /* unique, as in graph and metrics: block.0.attn.wq */
  const char *hf_name; /* in Hugging Face checkpoints, or NULL */
  tsr_dtype dtype;     /* as it is stored: TSR_F32, TSR_BF16 in a graph without a loss, or
                          TSR_NF4 or TSR_INT8 of a frozen weight of linear layers */
  bool hf_transposed;  /* there the two dimensions are swapped (GPT-2's Conv1D) */
  const char
      *replaces; /* a parameter of the models that a run may begin with in its place; or NULL */
  int ndim;
  int64_t shape[TSR_DIMS_MAX];
  tsr_padding padding; /* blocks 0: none, which tsr_graph_param makes one of all indices */
  tsr_init init;
  const char *dims[TSR_DIMS_MAX]; /* what the graph file calls its sizes, each or NULL */
  bool decay;                     /* weight decay applies */
  bool is_expert_bias;            /* (experts, out), read by expert_add */
  bool is_frozen;                 /* not trained: it has no gradient and no optimizer state */
  bool is_adapter;                /* added by tsr_pass_adapters: the base model does not have it */
  tsr_placement placement[TSR_AXES]; /* requested: replicate or shard(dim) */
  int stage;                         /* virtual stage that owns it */
  tsr_location location;
} tsr_param;

typedef struct {
  const char *name;
  tsr_value_kind kind;
  tsr_dtype dtype;
  int ndim;
  int64_t shape[TSR_DIMS_MAX];    /* global, of one microbatch */
  const char *dims[TSR_DIMS_MAX]; /* what the graph file calls these sizes, for messages; or NULL */
  tsr_padding padding;            /* of TSR_VALUE_NODE; blocks 0: none (tsr_value_padding) */
  tsr_routed routed;              /* what dimension 0 is */
  int node, output;               /* of TSR_VALUE_NODE */
  int param;                      /* index into graph->params for PARAM and its STATE, else -1 */
  const tsr_init *init;           /* of TSR_VALUE_CONST; else NULL */
  tsr_placement placement[TSR_AXES];
  int64_t units; /* > 0: a leading dimension of that many units (global) stands before `shape`, one
                    summand each; split over tp when placement[TSR_TP] is partial, else whole */
  bool units_of_sequence; /* these are units of positions, split over cp too when it is partial;
                             without units: partial over cp and tp, of which tp is added first */
  int64_t batch_units;    /* > 0: so many units of this rank's microbatch stand apart before those,
                             until cp has added its parts of each */
  tsr_dtype completes_to; /* of a partial sum in f32: TSR_BF16 or TSR_F16, which it is
                             rounded to, once, when it is complete; else TSR_F32 */
  tsr_location location;
} tsr_value;

/* Forward and backward run once for every microbatch, prologue and update once for every step.
 * Weights is the part of the backward pass that no other node of it waits for, where a pipeline's
 * order has it apart. */
typedef enum {
  TSR_PROLOGUE,
  TSR_FORWARD,
  TSR_BACKWARD,
  TSR_WEIGHTS,
  TSR_UPDATE,
  TSR_SECTIONS
} tsr_section;
const char *tsr_section_name(tsr_section section);

typedef struct {
  tsr_op op;
  tsr_section section;
  const char *name;
  int inputs_count, *inputs;
  int outputs_count, outputs[TSR_OUTPUTS_MAX];
  tsr_attrs attr;     /* the member of the op's set */
  const char *result; /* what the graph file calls its result, if not by its name; or NULL */
  const char *stream; /* of its random numbers: the forward node's name */
  int block;  /* which repetition of the graph file's outermost repeats it stands in; -1: none */
  int of;     /* of a backward node: the forward node that it is for; else -1 */
  bool again; /* it computes what `of` has computed, in the backward pass */
  int stage;  /* virtual stage of the pipeline; TSR_EVERY_STAGE */
  tsr_location location;
} tsr_node;

enum { TSR_EVERY_STAGE = -1 };

/* Whether dimension 0 of (experts, out, in), or of biases (experts, out), is experts, which ep and
 * cp distribute. */
static inline bool tsr_param_is_of_experts(const tsr_param *p) {
  const tsr_placement *ep = &p->placement[TSR_EP];
  return (p->ndim == 3 || p->is_expert_bias) && ep->kind == TSR_SHARD && ep->dim == 0;
}
/* The shape without padding. */
void tsr_param_real_shape(const tsr_param *param, int64_t ret_shape[TSR_DIMS_MAX]);
int64_t tsr_param_real_elements(const tsr_param *param);
/* Whether both are stored alike: name, shape, padding, placement. */
bool tsr_params_match(const tsr_param *a, const tsr_param *b);

/* What the recipe fixes and shapes depend on (base/reduction_tree.h, DESIGN: the contract on
 * bits). */
typedef struct {
  int64_t batch;    /* units of one step's samples, over ranks and microbatches */
  int64_t sequence; /* of a sample's positions; 0 or 1: positions are not split */
  int64_t tp;       /* of heads, hidden features and the vocabulary */
  int64_t expert;   /* leaves of the gradients of experts, a divisor of batch; 0: none */
  tsr_tree_shape tree;
  bool tp_in_half; /* activations and their gradients in half precision are summed over tp in it */
} tsr_units;

typedef struct {
  const char *name;
  int value;
  tsr_location location; /* in a graph file */
} tsr_graph_end;

/* Where a graph file lets the next pipeline stage begin. */
typedef struct {
  int node; /* its first */
  tsr_location location;
} tsr_stage_mark;

typedef struct tsr_graph {
  tsr_arena *arena;
  const char *name;
  tsr_value *values;
  int values_count, values_capacity;
  tsr_node *nodes;
  int nodes_count, nodes_capacity;
  tsr_param *params;
  int params_count, params_capacity;
  tsr_graph_end *outputs; /* requested: loss, logits, … */
  int outputs_count, outputs_capacity;
  tsr_stage_mark *stage_marks; /* of a graph as it was read: stages 1, 2, … */
  int stage_marks_count, stage_marks_capacity;
  int minimized;           /* the same: what backward() takes; -1: it is not called */
  int step_scalars;        /* the TSR_VALUE_STEP_SCALARS value, -1 before it is first needed */
  int loss;                /* -1: none */
  int grads_count, *grads; /* per parameter after autodiff: its gradient's value, -1 none */
  tsr_units units;
  int64_t microbatches; /* of a step: > 1 makes autodiff accumulate; set before it */
  int64_t drop_units;   /* batch units of a microbatch, for the capacity of experts; 0: they drop no
                           choice, as in all but training; set before calls */
  int block, of;        /* what nodes are stamped with as they are added */
} tsr_graph;

/* The axis over which an op moves or splits a tensor, or -1. */
static inline int tsr_node_axis(const tsr_node *n) {
  return tsr_op_moves(n->op) ? (int)n->attr.move.axis : -1;
}
/* Whether the output is a sum over the step's microbatches, to which each adds its input: that of
 * accumulate, and of a sum over an axis with the attribute of this name. */
bool tsr_node_accumulates(const tsr_node *node);
/* Whether a written-out collective requires NCCL. */
bool tsr_node_needs_nccl(const tsr_node *n);
/* The first node of a graph that does; NULL: none. */
const tsr_node *tsr_graph_find_nccl(const tsr_graph *g);
/* Makes a node require NCCL, where it moves data between ranks. */
void tsr_node_require_nccl(tsr_node *n);
/* How many samples' losses a loss gives one by one; 0: it gives one number. */
int64_t tsr_loss_samples(const tsr_node *loss);
/* The probability with which a node of a forward graph drops an element; 0: it drops none. */
double tsr_node_dropout(const tsr_node *n);
/* The input of a forward node that an update of its own writes, and no optimizer: the bias of a
 * choice of experts, or the counts of the step before; -1: none. */
int tsr_node_updated_input(const tsr_node *n);
/* Whether a node of that op has the parameter as its input of that index. */
bool tsr_param_is_input(const tsr_graph *g, const tsr_param *param, tsr_op op, int input);
/* Whether the parameter is the counts of the step before, which balance experts: no model needs
 * them. */
bool tsr_param_is_load(const tsr_graph *g, const tsr_param *param);
/* Of attention and document_attention: the index of the input that is the sinks; -1: none. */
int tsr_node_sinks(const tsr_node *n);
/* Of attention in any form: the features of a head of values, and of out. */
int64_t tsr_node_value_head(const tsr_node *n);

/* The numbers of one step, in the step_scalars value. */
typedef enum {
  TSR_SCALAR_LR,
  TSR_SCALAR_CORRECTION1,
  TSR_SCALAR_CORRECTION2,
  TSR_SCALAR_INV_COUNT,
  TSR_SCALAR_FIRST,
  TSR_SCALAR_LOSS_SCALE, /* read with fp16 only */
  TSR_SCALARS
} tsr_step_scalar;

tsr_graph *tsr_graph_new(tsr_arena *arena, const char *name, tsr_units units);
/* Room in an empty graph for so many, which spares copies of growing arrays; more may be added. */
void tsr_graph_reserve(tsr_graph *g, int nodes, int values, int params);

/* Each returns the new value's index. Shapes are copied; names too. */
int tsr_graph_input(
    tsr_graph *g, const char *name, tsr_dtype dtype, int ndim, const int64_t *shape,
    tsr_location location);
int tsr_graph_param(tsr_graph *g, const tsr_param *param);
int tsr_graph_const(
    tsr_graph *g, const char *name, const tsr_init *init, int ndim, const int64_t *shape,
    tsr_location location);
int tsr_graph_state(tsr_graph *g, const char *name, int param);
int tsr_graph_step_scalars(tsr_graph *g);
/* Is there after the step; of what each microbatch makes, the last one's is, where microbatches are
 * not alive together (with pipeline stages they are). */
void tsr_graph_output(tsr_graph *g, const char *name, int value);
int tsr_graph_find_output(const tsr_graph *g, const char *name); /* a value, or -1 */
/* The result of cross_entropy or mse that a value is, before collectives that a file wrote out:
 * what autodiff can begin from; or -1. */
int tsr_graph_find_loss(const tsr_graph *g, int value);

/* Adds a node without checks, for the passes: outputs get the shapes that the op's rule infers
 * (assert that it can). `attr` may be NULL (the defaults). Returns the first output's value, or the
 * node's index for ops without outputs. */
int tsr_graph_add(
    tsr_graph *g, tsr_op op, tsr_section section, const char *name, tsr_location location,
    int inputs_count, const int *inputs, const tsr_attrs *attr);
/* The same for ops whose output shape is not their inputs' matter (reshape). */
int tsr_graph_add_shaped(
    tsr_graph *g, tsr_op op, tsr_section section, const char *name, tsr_location location,
    int inputs_count, const int *inputs, const tsr_attrs *attr, int ndim, const int64_t *shape);

/* Copies a value without a node, or a node with other inputs, from another graph of the same arena;
 * the new value's (first output's) index, or the node's for ops without outputs. */
int tsr_graph_copy_value(tsr_graph *g, const tsr_value *value);
int tsr_graph_copy_node(tsr_graph *g, const tsr_graph *from, int node, const int *inputs);

/* An empty graph with another one's parameters, for passes that copy it; and, when that is done,
 * its outputs, loss, gradients and step_scalars value by the copies (`map`: old value → new). */
tsr_graph *tsr_graph_derive(const tsr_graph *old);
void tsr_graph_map_ends(tsr_graph *g, const tsr_graph *old, const int *map);

/* A call as a graph file writes it: `q: linear(h, wq, bq)`, `y: dropout(x, p: 0.1)`. */
enum { TSR_CALL_INPUTS_MAX = 8, TSR_CALL_ATTRS_MAX = 24 };
typedef struct {
  const char *name; /* NULL: it goes by its position */
  double value;
  const char *word; /* an identifier value (axis: dp), else NULL */
  int64_t list[TSR_DIMS_MAX];
  int list_count;                       /* > 0: a list value (shape: [2, 3]) */
  tsr_number_list numbers;              /* the value of an attribute that is a list of numbers */
  const char *list_names[TSR_DIMS_MAX]; /* what the file calls its items, for messages; or NULL */
  tsr_location location;
} tsr_call_attr;
typedef struct {
  const char *op, *result; /* result: the name that the outputs get */
  tsr_location op_place, location;
  int inputs_count, inputs[TSR_CALL_INPUTS_MAX];
  tsr_location input_places[TSR_CALL_INPUTS_MAX];
  int attrs_count; /* TSR_CALL_ATTRS_MAX or fewer */
  tsr_call_attr *attrs;
} tsr_call;

/* Checks and adds a call: the op's name (nearest one in the error), the number of inputs, attribute
 * names and values, shapes. Beside the ops of ops.def there are the short forms
 *   linear(x, w, b)            the product, then the bias (after the reduction, when there is one)
 *   rope(x, head_dim: d, theta: t, scaling_factor: f, low_freq_factor:, high_freq_factor:,
 *     original_context_length:, max_sequence_length:)   with its table made and shared
 *   split(x, sections: n, dim: d)   n results
 *   flash_attention(q, k, v, causal: 1)   of (batch, heads, sequence, head_dim)
 *   send(x, axis: pp, to: s), receive(x, axis: pp, from: s)   where pipeline stages end and begin
 *   backward(loss), autodiff(loss)   training minimizes it
 *   cross_entropy(logits, targets, valid: v)   mean over targets that are not the ignored -100
 *   mse(x, y)                  mean over all elements
 * Results: the user-visible values (one, but for split). */
bool tsr_graph_call(
    tsr_graph *g, const tsr_call *call, int ret_values[TSR_CALL_INPUTS_MAX], int *ret_count,
    tsr_diags *diags);
/* Of an op that graph files of others have and this program refuses: the feature, else NULL. */
const char *tsr_graph_refused_op(const char *name);
/* All names that tsr_graph_call knows, for messages; NULL-terminated. */
const char *const *tsr_graph_call_names(int *ret_count);

/* The dimension along which ZeRO splits a parameter of that placement over tp (and the norm of a
 * gradient is made of pieces) if it divides: one that tp does not split; -1: none. */
int tsr_zero_dim(int ndim, tsr_placement tp);

tsr_short_text tsr_shape_text(int ndim, const int64_t *shape); /* "(4, 16, 32)" */
/* "(batch 4, sequence 16, heads * 2 = 4, 32)" */
const char *tsr_value_shape_text(tsr_arena *arena, const tsr_value *value);
/* The same of any shape; `dims`: a name for each size, or NULL. */
const char *
tsr_named_shape_text(tsr_arena *arena, int ndim, const int64_t *shape, const char *const *dims);
int64_t tsr_value_elements(const tsr_value *value); /* global, units left out */
/* How a dimension is stored that has padding: that of a node's output, or the parameter's of which
 * a value is; NULL: all elements are real. */
const tsr_padding *tsr_value_padding(const tsr_graph *g, const tsr_value *value);
/* The shape without padding. */
void tsr_value_real_shape(
    const tsr_graph *g, const tsr_value *value, int64_t ret_shape[TSR_DIMS_MAX]);
/* Where a value is made or kept: a virtual stage, or TSR_EVERY_STAGE. */
int tsr_value_stage(const tsr_graph *g, int value);

/* The text of --dump graph and --dump placement: one line a node, with names, shapes, placements
 * that are not replicate, and attributes that are not the default. */
void tsr_graph_print(const tsr_graph *g, bool placements, tsr_text *text);

#endif

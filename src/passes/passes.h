// SPDX-License-Identifier: Apache-2.0
/* The passes from a forward graph to one that a program can be lowered from. Each is one function;
 * the head of each file states what it requires, produces and invalidates. */
#ifndef TSR_PASSES_PASSES_H
#define TSR_PASSES_PASSES_H
#include "graph/graph.h"

/* How a parameter is trained. */
typedef struct {
  bool is_frozen;
  bool is_nf4;   /* stored in NF4: a frozen weight of linear layers (QLoRA) */
  bool is_saved; /* it is trained whole because modules_to_save names its module */
  int64_t rank;  /* > 0: linear layers that read it have adapters of this rank */
  double alpha;  /* lora_alpha of these */
  double scale;  /* what an adapter adds is multiplied by */
} tsr_param_training;

typedef struct {
  const tsr_param_training *params; /* per parameter of the graph */
  double dropout;                   /* of the input of adapters; 0 outside training */
  bool has_magnitudes;              /* DoRA */
} tsr_adapters;

/* Adds adapters to linear layers (LoRA, DoRA), and freezes parameters. DoRA's magnitudes begin with
 * ones, and not with the norms of the weights' rows. */
tsr_graph *tsr_pass_adapters(const tsr_graph *graph, const tsr_adapters *adapters);
/* Weights of linear layers are stored in this quantised dtype, for a graph that only runs forward.
 * Not the output layer's, routers', and those of experts. */
void tsr_pass_quantize(tsr_graph *graph, tsr_dtype dtype);
/* Per parameter, in the graph's arena: whether it is such a weight. */
bool *tsr_graph_inner_weights(const tsr_graph *graph);
/* Per parameter, in the graph's arena: whether it is a weight whose GEMMs can read FP8: these, and
 * those of experts. */
bool *tsr_graph_fp8_weights(const tsr_graph *graph);
/* The GEMMs of weights that are chosen (per parameter) quantise their operands to FP8. Before
 * autodiff, which gives the gradients of a layer its recipe. False: no layer does. */
bool tsr_pass_fp8(tsr_graph *graph, tsr_fp8_recipe recipe, const bool *chosen);
/* An error where a quantised weight has blocks that its rows, or the units of tp, cut. */
bool tsr_pass_check_blocks(const tsr_graph *graph, tsr_diags *diags);
/* The parameters of a weight's adapter, in a graph that has them; false: it has none. */
typedef struct {
  int a, b, m; /* (r, in), (out, r), (out) of DoRA or -1 */
  double scale;
} tsr_adapter;
bool tsr_adapter_find(const tsr_graph *graph, int weight, tsr_adapter *ret_adapter);
/* Whether a node can have one: a linear layer whose weight is a parameter. */
bool tsr_adapter_can(const tsr_graph *graph, const tsr_node *node);
/* The name of the module that a parameter is (a part of) the weight of, in Hugging Face's models;
 * the parameter's own where it has no name there. */
const char *tsr_adapter_module(tsr_arena *arena, const tsr_param *param);

/* Adds the backward nodes of g->loss (one that tsr_graph_find_loss knows), and accumulation over
 * g->microbatches of the loss and of all that is owed to a parameter; what several uses of one
 * parameter owe to it is added once, after that, as is gone through once what parameters alone are
 * made of. g->grads gets each parameter's gradient (-1: the loss does not depend on it). */
void tsr_pass_autodiff(tsr_graph *g);

typedef enum { TSR_RULE_ADAMW, TSR_RULE_SGD, TSR_RULE_NONE } tsr_optimizer_kind;
typedef struct {
  tsr_optimizer_kind kind;
  tsr_param_store store;
  double beta1, beta2, eps, weight_decay;
  bool amsgrad;
  bool coupled; /* Adam: weight decay is added to the gradient */
  double momentum, dampening;
  bool nesterov;
  double clip_max_norm; /* 0: only measure the norm */
  bool may_skip; /* the norm decides whether weights are updated: with tsr_pass_precision's fp16 */
} tsr_optimizer;

/* Adds the global gradient norm, clipping and one update node a parameter; output `clip`: the norm,
 * what gradients are multiplied by, and 1 (0: nothing is updated, see tsr_pass_precision). Updates
 * read it where the norm changes or stops them; otherwise each needs its own gradient alone. */
void tsr_pass_optimizer(tsr_graph *g, const tsr_optimizer *optimizer);
/* Also, for each choice of experts, the update of its bias and of the counts that a loss of the
 * next step reads, and an output of this name and the choice's: the choices of the step's tokens by
 * expert (2, E), a count's remainder modulo TSR_COUNT_DIGIT and what that leaves. */
#define TSR_EXPERT_COUNTS "experts."
#define TSR_EXPERT_ROWS "expert_rows." /* the same of those that a capacity has not dropped */
/* An error where the loss that balances experts over a forward pass would be of a microbatch, or
 * where a bias is updated of parameters that are trained too. */
bool tsr_pass_check_balance(const tsr_graph *g, int64_t microbatches, tsr_diags *diags);

/* What the backward pass computes again instead of keeping it: nothing, every block's attention,
 * its maps over elements and norms (TSR_FACT_CHEAP), or these and the whole of every `every`-th
 * block. */
typedef enum {
  TSR_KEEP_ALL,
  TSR_RECOMPUTE_BLOCKS,
  TSR_RECOMPUTE_ATTENTION,
  TSR_RECOMPUTE_MAPS
} tsr_recompute_kind;
typedef struct {
  tsr_recompute_kind kind;
  int64_t every;    /* >= 1 */
  bool keeps_norms; /* of maps: where what a norm makes is gathered before it is used */
  /* The ranks that split a cross-entropy's vocabulary: its logits are computed again, too, where a
   * rank's part of a row is longer than the row from which it is computed. 0: they are kept. */
  int64_t logits;
} tsr_recomputing;

/* After autodiff and stages; of a kind other than none. */
tsr_graph *tsr_pass_recompute(const tsr_graph *graph, tsr_recomputing how);

/* Which activations are copied to the host's memory and back. */
typedef struct {
  int64_t blocks;     /* the first so many of each virtual stage; 0: all */
  int64_t min_bytes;  /* of a rank's part of an activation */
  int size[TSR_AXES]; /* of the mesh */
} tsr_offloading;

/* After placement. */
tsr_graph *tsr_pass_offload(const tsr_graph *placed, const tsr_offloading *how);

/* Where the forward graph is split: virtual stage i + 1 begins at node first[i]. */
typedef struct {
  int count;
  const char **first;
  tsr_location location; /* where the user asked for it */
  /* NULL: of the graph at hand; else one of which that may lack nodes (dropout, the loss): a stage
   * then begins at the next node that both have */
  const tsr_graph *of;
  bool everywhere; /* no stages: every rank of pp runs all nodes */
} tsr_stage_split;

/* Gives every node its virtual stage, every parameter its owner: the first stage that uses it.
 * Errors: a node that does not exist, or out of order. */
bool tsr_pass_stages(tsr_graph *g, const tsr_stage_split *split, tsr_diags *diags);

/* Puts the weights' gradients into a section of their own (TSR_WEIGHTS), for orders that run it
 * apart from the rest of the backward pass. */
void tsr_pass_weights(tsr_graph *g);

/* What is computed between the parameters and the loss is stored in `dtype` (TSR_BF16, TSR_F16). */
typedef struct {
  tsr_dtype dtype;
  tsr_param_store store;   /* the optimizer's; other than f32: parameters have no working copies */
  const tsr_graph *stored; /* placed; whose parameters' memory this graph shares; NULL: none */
  bool only_reads;         /* no graph that shares them trains: all parameters are as frozen ones */
} tsr_precision_types;

/* After stages (and weights), before placement. Kernels compute in f32 and a result is rounded
 * once, when it is written. In f32 stay: losses, the logits or predictions they are made of and the
 * gradients of those, rows' statistics, what is a parameter's gradient or a sum on the way to it,
 * updates, and what the graph gives out. A parameter is rounded once a step to a working copy,
 * which is what forward and backward pass read. A frozen parameter is stored in `dtype` alone.
 *
 * With fp16 the loss's gradient is multiplied by TSR_SCALAR_LOSS_SCALE, and clip divides by it: its
 * norm and factor are those of gradients without the scale. When that norm is not finite, clip's
 * third number is 0 and no parameter nor state changes; the norm is over all shards, so every rank
 * decides alike. */
tsr_graph *tsr_pass_precision(const tsr_graph *graph, tsr_precision_types how);

/* A graph for text, without loss, that gives `logits`, whose only input is tokens (batch,
 * positions), becomes one of `new_tokens` of each sequence, that stand behind those of earlier
 * runs. The inputs TSR_CACHE_POSITIONS and TSR_CACHE_COUNTS (batch) say where the new ones begin
 * and how many of them are real. Attention keeps its keys and values (TSR_FACT_KEPT) in a pool of
 * pages; the input TSR_CACHE_PAGES (batch, tsr_cache_pages_each) has the numbers of each sequence's
 * pages, in the order of its positions, of which there may be as many as the graph had. Where ranks
 * split the batch, the pool is split alike, and the numbers count inside the rank's part. No number
 * depends on where the pages are: every position's have the bits that they had without a cache.
 * After stages, before precision; what is placed then is not split along positions, so over cp
 * everything must be whole.
 *
 * False for a graph in which something else mixes positions; `ret_why` names it. */
#define TSR_CACHE_POSITIONS "cache.positions"
#define TSR_CACHE_COUNTS "cache.counts"
#define TSR_CACHE_PAGES "cache.pages"
/* A page has a multiple of as many positions. */
enum { TSR_CACHE_PAGE_STEP = 16 };
typedef struct {
  int64_t new_tokens;
  bool last_only; /* logits (batch, 1, vocabulary) of the last real token alone */
  int64_t page;   /* positions of a page */
  int64_t pages;  /* of all ranks; 0: as many as all sequences can have */
} tsr_cache_shape;
static inline int64_t tsr_cache_pages_each(int64_t length, int64_t page) {
  return (length + page - 1) / page;
}
bool tsr_pass_cache(
    const tsr_graph *graph, const tsr_cache_shape *shape, tsr_graph **ret_graph,
    const char **ret_why);

/* A graph of text whose samples are runs of whole or partial documents, for which the input
 * TSR_DOCUMENT_POSITIONS (batch, positions) has the position of each token in its document, 0 at
 * the first. Attention becomes document_attention, and rotary positions and rows of tables by
 * position are those of the document. As it was read, before all other passes. Error: something
 * else mixes positions. */
#define TSR_DOCUMENT_POSITIONS "documents.positions"
bool tsr_pass_separate_documents(
    const tsr_graph *graph, tsr_location location, tsr_graph **ret_graph, tsr_diags *diags);

/* The loss of a forward graph (one that tsr_graph_find_loss knows) becomes a number for each of the
 * batch's `samples`, of which the first `real` are the step's; their sum is the loss. What is made
 * of the loss is gone. After stages, before precision. */
tsr_graph *tsr_pass_by_sample(const tsr_graph *graph, int64_t samples, int64_t real);
/* Whether each of the `units` into which the recipe splits the samples of a forward graph's inputs
 * is computed by itself, up to the loss. Error: an op that mixes them. Its results depend on how
 * many samples are computed at once, so a step of several microbatches cannot have it. */
bool tsr_pass_check_mixed(const tsr_graph *graph, int64_t units, tsr_diags *diags);

/* An error where the graph of a microbatch differs, but for shapes, from that of all of a `step`'s
 * samples. */
bool tsr_pass_check_numbers(const tsr_graph *graph, const tsr_graph *step, tsr_diags *diags);

/* An error for an op by which a parameter's padding (tsr_padding of one block) would be trained. */
bool tsr_pass_check_padding(const tsr_graph *graph, tsr_diags *diags);

/* The parameters of `whole` for a graph that is a part of it (adopt_training_params.c). Error: a
 * parameter that does not exist, or that has another shape or placement there. */
bool tsr_pass_take_params(tsr_graph *graph, const tsr_graph *whole, tsr_diags *diags);

/* Per value, in the graph's arena: whether it is an input or is made of one. */
bool *tsr_graph_depends_on_inputs(const tsr_graph *graph);
/* Whether a placed graph has a collective over dp on anything that depends on its inputs. If it has
 * none, no sample's numbers depend on other samples. */
bool tsr_graph_joins_samples(const tsr_graph *placed);

/* What dp does with a batch. Shared: each rank has a part of the samples, and sums over them are
 * partial; by sample: the same, with a loss of tsr_pass_by_sample; whole: each rank has all. */
typedef enum { TSR_BATCH_SHARED, TSR_BATCH_BY_SAMPLE, TSR_BATCH_WHOLE } tsr_batch_kind;

/* How often a value is split over an axis, and in how many units the recipe splits its sums. */
typedef struct {
  int size[TSR_AXES];
  int64_t units[TSR_AXES]; /* 1 where the axis has none; those of cp are the sequence's */
  int64_t sequence_units;  /* the recipe's, 0 or 1: none */
  bool zigzag;             /* over cp (base/sequence_layout.h) */
  bool is_model;           /* it is trained, or what was trained evaluates or generates */
  bool whole_positions;    /* every rank of cp has all positions (of new tokens, tsr_pass_cache); of
                              cp only experts are shared out */
  bool sequence_parallel;  /* Korthikanti et al., 2022: norms and dropout on a slice of the sequence
                            */
  int zero; /* Rajbhandari et al., 2020: 1 state, 2 and gradients, 3 and parameters over dp */
  int zero_groups;  /* > 1: dp is so many groups, and each shards for itself */
  bool zero_owners; /* a parameter has an owner, and no slice on each rank: the rank of its group at
                       FNV-1a 64 of the parameter's name, modulo the group's size */
  tsr_batch_kind batch;
  const tsr_graph *stored; /* placed; whose parameters' memory this graph shares, see
                              tsr_pass_take_params; NULL: none */
} tsr_placing;

/* The nodes of context-parallel attention in place of `node` of `from` (attention, or its
 * gradient), whose inputs in g are `inputs`; the results, in the order of the node's outputs. */
void tsr_pass_ring_attention(
    tsr_graph *g, const tsr_graph *from, int node, const int *inputs, int members,
    int ret_outputs[TSR_OUTPUTS_MAX]);

/* Gives every value a placement on every axis, and inserts the collectives that make each op's
 * inputs what its rule wants. The result is a new graph in the same arena. Errors: a dimension that
 * does not divide, a written-out collective that has nothing to complete. */
bool tsr_pass_placement(
    const tsr_graph *g, const tsr_placing *placing, tsr_graph **ret_graph, tsr_diags *diags);

#endif

// SPDX-License-Identifier: Apache-2.0
/* The configuration of a run: tt-train's YAML, read into one struct with every value resolved.
 *
 * A file has the sections training_config, device_config, scheduler_config, eval_config and others,
 * and names its model by `model_config: path` or holds it (transformer_config, mlp_config). The one
 * table of keys is fields.def: reading, checks, defaults, printing, the manual page and the JSON
 * Schema all come from it. Defaults are tt-train's where it has the key.
 *
 * Paths of other YAML files are taken, with ${NAME} from the environment, relative to the working
 * directory, to the file that names them, or to that file's parents; when a variable of the path is
 * not set, the path's tails are tried there. */
#ifndef TSR_CONFIG_CONFIG_H
#define TSR_CONFIG_CONFIG_H
#include "base/axis.h"
#include "config/yaml.h"

enum { TSR_MESH_NDIM_MAX = 4, TSR_STAGES_MAX = 4096, TSR_DATA_SOURCES_MAX = 256 };

typedef enum { TSR_TOKENS_CHAR, TSR_TOKENS_BYTE, TSR_TOKENS_BPE } tsr_tokenizer_type;
typedef enum {
  TSR_OPTIMIZER_ADAMW,
  TSR_OPTIMIZER_ADAM,
  TSR_OPTIMIZER_SGD,
  TSR_OPTIMIZER_NOOP
} tsr_optimizer_type;
typedef enum { TSR_NUMERICS_DETERMINISTIC, TSR_NUMERICS_FAST } tsr_numerics_policy;
typedef enum { TSR_RUNNER_DEFAULT, TSR_RUNNER_MEMORY_EFFICIENT } tsr_runner;
/* fp8: bf16, but for the GEMMs of linear layers (base/fp8_layout.h). */
typedef enum {
  TSR_PRECISION_F32,
  TSR_PRECISION_BF16,
  TSR_PRECISION_FP16,
  TSR_PRECISION_FP8
} tsr_precision;

typedef enum { TSR_GRADIENTS_E4M3, TSR_GRADIENTS_E5M2 } tsr_fp8_gradients;
typedef enum { TSR_SCALES_POWER_OF_TWO, TSR_SCALES_F32 } tsr_fp8_scale_kind;
typedef enum {
  TSR_RECOMPUTE_NONE,
  TSR_RECOMPUTE_FULL,
  TSR_RECOMPUTE_SELECTIVE,
  TSR_RECOMPUTE_CHEAP,
  TSR_RECOMPUTE_AUTO
} tsr_recompute;
typedef enum { TSR_OVERLAP_OFF, TSR_OVERLAP_ON, TSR_OVERLAP_AUTO } tsr_overlap;
typedef enum { TSR_OFFLOAD_NONE, TSR_OFFLOAD_FILE } tsr_offload;
typedef enum { TSR_ACTIVATION_OFFLOAD_NONE, TSR_ACTIVATION_OFFLOAD_BLOCKS } tsr_activation_offload;
typedef enum { TSR_PARTITION_FLAT, TSR_PARTITION_OWNER_HASH } tsr_partition;
typedef enum { TSR_BALANCE_FLOPS, TSR_BALANCE_MEMORY } tsr_balance;
typedef enum { TSR_DEVICE_CPU, TSR_DEVICE_CUDA, TSR_DEVICE_AUTO } tsr_device_kind;
typedef enum { TSR_CP_CONTIGUOUS, TSR_CP_ZIGZAG } tsr_cp_layout;

/* In the order of tsr_lr_kind (train/learning_rate.h), which defines the curves. */
typedef enum {
  TSR_SCHEDULER_CONSTANT,
  TSR_SCHEDULER_LINEAR,
  TSR_SCHEDULER_WARMUP_LINEAR,
  TSR_SCHEDULER_COSINE,
  TSR_SCHEDULER_WSD,
} tsr_scheduler_type;

/* The first two in the order of tsr_loss_scale_mode (train/loss_scale.h); static: it stays. */
typedef enum { TSR_SCALE_TESSERA, TSR_SCALE_INTERVAL, TSR_SCALE_STATIC } tsr_scale_mode;

/* In the order of tsr_token_format (data/token_files.h). */
typedef enum {
  TSR_DATA_AUTO,
  TSR_DATA_TEXT,
  TSR_DATA_LLMC,
  TSR_DATA_NANOGPT_U16,
  TSR_DATA_NANOGPT_U32,
  TSR_DATA_MEGATRON,
  TSR_DATA_TT_TRAIN,
} tsr_data_format;
typedef enum { TSR_DOCUMENTS_PACKED, TSR_DOCUMENTS_SEPARATE } tsr_documents;

typedef struct {
  const char *path;       /* a file or a pattern, with ${NAME} expanded */
  tsr_data_format format; /* TSR_DATA_AUTO: training.data_format */
  double weight;          /* above 0; of all sources or of none: 0 */
  tsr_location location;
} tsr_config_data_source;

/* What data.format says of all files. */
typedef enum {
  TSR_FILES_AUTO, /* as training.data_format says */
  TSR_FILES_TEXT,
  TSR_FILES_TOKENS,
  TSR_FILES_CHAT,   /* conversations; then documents are separate */
  TSR_FILES_LABELS, /* texts with a label each; likewise */
} tsr_files_format;
typedef enum {
  TSR_TRAINED_ASSISTANT,
  TSR_TRAINED_LAST_ASSISTANT,
  TSR_TRAINED_ALL
} tsr_trained_part;
typedef enum { TSR_PACKING_BEST_FIT, TSR_PACKING_NONE } tsr_packing;
typedef enum { TSR_TOO_LONG_TRUNCATE, TSR_TOO_LONG_DROP } tsr_too_long;

/* Names: a list of them; of modules also one regular expression (or `all-linear`). */
typedef struct {
  const char *text;
  tsr_location location;
} tsr_config_name;
typedef struct {
  const tsr_config_name *items;
  int count; /* 0: not given */
  bool is_one;
} tsr_config_names;

/* Of conversations, `packing` and `too_long` also of texts with labels. */
typedef struct {
  tsr_files_format format;
  const char *template_path; /* "tokenizer": the one of the tokenizer's folder; ${NAME} expanded */
  const char *date;          /* that templates read: "2026-01-31"; "": none */
  int64_t date_s;            /* seconds from 1970 to its begin (UTC) */
  tsr_trained_part train_on;
  tsr_packing packing;
  tsr_too_long too_long;
  tsr_config_names labels; /* the classes of labelled texts, in the order of their numbers */
} tsr_config_data;

typedef enum { TSR_VALIDATE_NONE, TSR_VALIDATE_REPLICAS } tsr_validate;
/* What follows where replicas differ. */
typedef enum { TSR_VALIDATE_STOP, TSR_VALIDATE_WARN, TSR_VALIDATE_RESUME } tsr_validate_policy;

typedef struct {
  const char *project_name;
  const char *module; /* the graph's name in reports; "": the one that it has */
  tsr_validate validate;
  int64_t validate_every; /* steps, >= 1 */
  tsr_validate_policy validate_policy;
  uint64_t seed;
  int64_t batch_size;          /* samples of a microbatch, over all of dp; never 0 */
  int64_t batch_size_per_rank; /* 0: not given; then batch_size is the default unless given too */
  bool batch_size_given;
  int64_t gradient_accumulation_steps;
  int64_t max_steps;       /* optimizer steps */
  int64_t num_epochs;      /* training ends after so many, if max_steps is not reached before */
  int64_t sequence_length; /* 0: the model's max_sequence_length */
  const char *data_path;   /* "": not given; as written, with ${NAME} expanded */
  const tsr_config_data_source *data_sources; /* instead of data_path */
  int data_sources_count;                     /* 0: not given */
  tsr_data_format data_format;
  const char *validation_path; /* "": not given; it is above validation_fraction */
  int64_t sample_stride;       /* tokens; 0: 1 for text, sequence_length for token files */
  tsr_documents documents;
  int64_t end_of_text; /* the token behind a document; -1: the tokenizer's */
  tsr_tokenizer_type tokenizer_type;
  const char *tokenizer_path; /* "": not given */
  bool use_clip_grad_norm;
  double clip_grad_norm_max_norm; /* > 0 */
  int64_t validation_batch_size;  /* never 0 */
  int64_t eval_every;             /* steps; 0: never */
  double validation_fraction;     /* of the data, [0, 1) */
  int64_t early_stop_patience;    /* evaluations; 0: no early stop */
  double early_stop_min_delta;    /* >= 0 */
  int64_t log_every;              /* steps, >= 1 */
  const char *checkpoint_dir;     /* with ${NAME} expanded */
  const char *model_path;         /* weights to start from; "": none */
  int64_t model_save_interval;    /* steps; 0: never */
  int64_t ignore_index;           /* targets of this value have no loss */
  int64_t sample_every;           /* steps between generated samples; 0: only at the end */
  int64_t sample_tokens;
  tsr_runner runner;           /* memory_efficient if, and only if, schedule.recompute is full */
  bool mixed_precision;        /* whether precision is not f32 */
  tsr_precision precision;     /* of what is computed between the f32 parameters and the loss */
  tsr_scale_mode loss_scale;   /* read with fp16 only */
  double loss_scale_init;      /* at least 1; of tessera at most 65536 */
  int64_t loss_scale_interval; /* good steps, >= 1 */
  tsr_fp8_gradients fp8_gradients; /* these three are read with fp8 only */
  tsr_fp8_scale_kind fp8_scales;
  tsr_config_names fp8_exclude; /* modules that stay in bf16 */
} tsr_config_training;

typedef struct {
  tsr_optimizer_type type;
  const char *type_name; /* as tt-train calls it */
  double lr, beta1, beta2, epsilon, weight_decay;
  bool amsgrad;
  double momentum, dampening; /* sgd */
  bool nesterov;
  /* At most one; with precision bf16: parameters are stored in bf16, and there is no f32 copy. */
  bool stochastic_rounding, kahan_summation;
} tsr_config_optimizer;

typedef struct {
  tsr_scheduler_type type;
  double max_lr; /* the curve's base; optimizer.lr unless given */
  double min_lr;
  int64_t warmup_steps; /* at most max_steps; not of warmup_linear */
  int64_t stable_steps; /* wsd: at max_lr after the warm-up */
  int64_t decay_steps;  /* wsd: warmup + stable + decay = max_steps */
} tsr_config_scheduler;

typedef struct {
  int mesh_shape[TSR_MESH_NDIM_MAX], mesh_ndim; /* 0: no shape was given */
  int axes[TSR_MESH_NDIM_MAX], axes_count;      /* tsr_axis of each dimension; 0: not named */
  int devices; /* mesh.devices or mesh.axes with a count only: to be factorised; else 0 */
  bool mesh_auto;
  tsr_device_kind kind;
  const int *device_ids; /* NULL: not given */
  int device_ids_count;
  bool strict_divisible;
  bool enable_ddp, enable_fsdp, enable_tp, enable_pp, enable_cp, enable_ep, enable_sp;
  const char *mesh_graph_descriptor; /* "": not given */
  int64_t memory_limit;              /* bytes a process may use; 0: what the machine has */
  tsr_cp_layout cp_layout;           /* which parts of the sequence a rank of cp holds */
} tsr_config_device;

typedef struct {
  const tsr_yaml *map;  /* the transformer_config or mlp_config mapping; NULL: none */
  const char *map_name; /* "transformer_config", "mlp_config"; NULL: none */
  const char *kind;     /* "transformer", "mlp", "graph" (hand-written sections); NULL: no model */
  const char *model_type; /* "gpt2", …, "mlp", or the user's own with graph_file */
  tsr_location location;  /* of model_type, else of the map */
  const char *graph_file; /* `graph: path`, found as other YAML paths are; NULL: the shipped one */
  tsr_location graph_place;
  const char *file; /* the file that holds the map */
} tsr_config_model;

typedef struct {
  double repetition_penalty, temperature; /* below 0.01: greedy */
  int64_t top_k;                          /* -1 or 0: off */
  double top_p;
  uint64_t seed;
  const char *prompt;
  int64_t max_new_tokens;
} tsr_config_eval;

/* The order in which units are added. Ring is flat, carried by a ring between processes. */
typedef enum { TSR_REDUCE_TREE_BINARY, TSR_REDUCE_TREE_FLAT, TSR_REDUCE_TREE_RING } tsr_reduce_tree;

/* The type in which activations and their gradients are summed over tp. */
typedef enum { TSR_TP_REDUCTIONS_F32, TSR_TP_REDUCTIONS_HALF } tsr_tp_reductions;

typedef struct {
  tsr_numerics_policy policy;
  tsr_reduce_tree reduce_tree;
  tsr_tp_reductions tp_reductions;
  int64_t units_batch, units_sequence, units_tp,
      units_expert; /* 0: what mesh and microbatches need */
  int64_t threads;  /* 0: all cores */
  const char *isa;  /* "": the best of this machine */
} tsr_config_numerics;

/* Whether units are added from left to right; policy fast keeps no order. */
static inline bool tsr_config_numerics_are_flat(const tsr_config_numerics *n) {
  return n->reduce_tree != TSR_REDUCE_TREE_BINARY && n->policy != TSR_NUMERICS_FAST;
}

typedef struct {
  tsr_overlap all_reduce_overlap;
  bool auto_overlaps; /* what auto comes to, for the mesh, processes and devices of a run */
  int64_t pipeline_microbatches; /* 0: gradient_accumulation_steps */
  tsr_recompute recompute;
  int64_t recompute_every; /* of full: every so many blocks one is computed again */
  int64_t bucket_size;     /* bytes, >= 1 */
  tsr_activation_offload activation_offload;
  int64_t activation_offload_blocks;   /* the first so many of each virtual stage; 0: all */
  int64_t activation_offload_min_size; /* bytes of an activation, >= 1 */
} tsr_config_schedule;

/* Whether collectives over dp run beside other tasks. */
static inline bool tsr_config_overlaps(const tsr_config_schedule *s) {
  return s->all_reduce_overlap == TSR_OVERLAP_ON ||
         (s->all_reduce_overlap == TSR_OVERLAP_AUTO && s->auto_overlaps);
}

typedef struct {
  const char *name;  /* "": it has none */
  const char *begin; /* the node that it begins with; "": the first stage, which begins the model */
  tsr_location location;
} tsr_config_stage;

/* At most one of stages and blocks_per_rank is given. Whether the counts are those of pp, and the
 * nodes those of the model, is not known here. */
typedef struct {
  const char *schedule;      /* as it is written: "1f1b", "ZB-H1", "file:PATH" */
  const char *schedule_file; /* that PATH, found as other YAML paths are; NULL: a named order */
  int64_t virtual_stages;    /* 0: one, or two where the schedule needs them */
  const tsr_config_stage *stages;
  int stages_count; /* 0: not given */
  const int *blocks_per_rank;
  int blocks_count; /* 0: not given */
  tsr_location blocks_place;
  tsr_balance balance;
  int64_t workers; /* above 0: so many stages, the mesh's outermost axis, not in mesh_shape */
} tsr_config_pipeline;

typedef struct {
  int64_t stage; /* 0 to 3 */
  tsr_offload offload;
  const char *offload_path; /* "": not given; with ${NAME} expanded */
  tsr_partition partition;
} tsr_config_zero;

typedef enum { TSR_RESUME_NEVER, TSR_RESUME_AUTO } tsr_resume;

/* Where and how often: training.checkpoint_dir and training.model_save_interval. */
typedef struct {
  int64_t keep_last, keep_every; /* 0: all; none */
  int64_t keep_best;             /* 0 to TSR_BEST_MAX (checkpoint/manifest.h) */
  tsr_resume resume;
  const char *tag; /* a label of the run's checkpoints; "": none */
  bool optimizer;  /* the optimizer's state is kept; false: weights alone */
  bool background, verify;
  const char *time_limit; /* as written; "": none */
  double time_limit_s;    /* 0: none */
} tsr_config_checkpoint;

typedef enum { TSR_TRANSPORT_AUTO, TSR_TRANSPORT_MPI, TSR_TRANSPORT_NCCL } tsr_transport_choice;

typedef enum {
  TSR_ALL_REDUCE_AUTO, /* by hosts, where it can */
  TSR_ALL_REDUCE_TREE, /* directly between processes */
  TSR_ALL_REDUCE_HIER, /* in each host, between hosts, in each host again */
  TSR_ALL_REDUCE_RING  /* from process to process */
} tsr_all_reduce_algorithm;

typedef struct {
  tsr_transport_choice transport; /* between processes */
  tsr_all_reduce_algorithm all_reduce;
  double timeout_s; /* that a process waits for others */
} tsr_config_collectives;

/* The same place: a step ends where its pipeline is empty. */
typedef enum { TSR_SAFE_STEP, TSR_SAFE_PIPELINE } tsr_safe_point;

typedef struct {
  bool rejoin; /* then checkpoint.resume is auto */
  tsr_safe_point safe_point;
  int64_t min_workers, max_workers; /* 0 at most: as many as there are ranks */
} tsr_config_elastic;

/* Numbers by names of modules. */
typedef struct {
  tsr_config_name name;
  double value;
} tsr_config_number;
typedef struct {
  const tsr_config_number *items;
  int count;
} tsr_config_numbers;

typedef enum { TSR_LORA_BASE_PLAIN, TSR_LORA_BASE_NF4 } tsr_lora_base;
typedef enum { TSR_LORA_BIAS_NONE, TSR_LORA_BIAS_ALL, TSR_LORA_BIAS_LORA_ONLY } tsr_lora_bias;

typedef struct {
  bool enabled;     /* whether the section is given */
  const char *path; /* adapters to start from; "": none */
  int64_t r;
  double alpha, dropout;
  bool use_rslora, use_dora;
  tsr_config_numbers rank_pattern, alpha_pattern; /* of some modules, instead of r and alpha */
  tsr_config_names target_modules, exclude_modules, modules_to_save;
  tsr_lora_bias bias;
  tsr_lora_base base;
} tsr_config_lora;

typedef struct tsr_config {
  const char *file;
  tsr_yaml *root; /* with the --set values in it */
  tsr_config_training training;
  tsr_config_data data;
  tsr_config_optimizer optimizer;
  tsr_config_scheduler scheduler;
  tsr_config_device device;
  tsr_config_model model;
  tsr_config_eval eval;
  tsr_config_numerics numerics;
  tsr_config_schedule schedule;
  tsr_config_pipeline pipeline;
  tsr_config_zero zero;
  tsr_config_checkpoint checkpoint;
  tsr_config_collectives collectives;
  tsr_config_elastic elastic;
  tsr_config_lora lora;
  /* A hand-written graph's sections, as they stand in the file; NULL where there is none. */
  const tsr_yaml *graph, *tensors, *inputs, *parameters, *outputs;
  const struct tsr_config_origins *origins; /* of every value: private to src/config */
} tsr_config;

/* How all-reduces travel: what is asked for, or what the order of the sums is named after. */
static inline tsr_all_reduce_algorithm tsr_config_all_reduce(const tsr_config *c) {
  bool ring =
      c->numerics.reduce_tree == TSR_REDUCE_TREE_RING && tsr_config_numerics_are_flat(&c->numerics);
  bool asked = c->collectives.all_reduce != TSR_ALL_REDUCE_AUTO;
  return ring && !asked ? TSR_ALL_REDUCE_RING : c->collectives.all_reduce;
}

/* Whether the model's graph is the user's, in a file or in the configuration itself. */
static inline bool tsr_config_has_own_graph(const tsr_config *c) {
  return c->graph || c->model.graph_file;
}

/* Whether sums over tp of values in half precision are made in it. */
static inline bool tsr_config_sums_tp_in_half(const tsr_config *c) {
  return c->numerics.tp_reductions == TSR_TP_REDUCTIONS_HALF &&
         c->training.precision != TSR_PRECISION_F32;
}

/* A value that the command line gives: `text` is "training_config.batch_size=8" of --set, or the
 * value alone of another option that stands for a key, as YAML or as it is. */
typedef struct {
  const char *text;
  const char *option, *key; /* "--top-k", "eval_config.top_k"; NULL: --set */
  bool is_verbatim;
} tsr_set;

/* Reads a file and applies `sets` in their order. All errors of the file, of those that it names
 * and of the sets are reported in one call. */
bool tsr_config_load(
    tsr_arena *arena, const char *path, const tsr_set *sets, int sets_count,
    tsr_config **ret_config, tsr_diags *diags);

/* The same from a text that is in memory. Files that it names are read only if `read_files`. */
bool tsr_config_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, const tsr_set *sets,
    int sets_count, bool read_files, tsr_config **ret_config, tsr_diags *diags);

/* Seconds of "5400", "90m" or "1h30m"; false for anything else, and for no time at all. */
bool tsr_config_duration(const char *text, double *ret_seconds);

/* Where a value came from: "training_config.batch_size", "training_config.optimizer.lr" (also
 * "optimizer.lr"), "transformer_config.num_heads". TSR_NOWHERE for a default. */
tsr_location tsr_config_location(const tsr_config *config, const char *dotted_key);

/* The error "no model: …" when there is none. */
bool tsr_config_require_model(const tsr_config *config, tsr_diags *diags);

/* `name` as a path from `from_file`, by the rules above; false with the error of a missing file. */
bool tsr_config_find_file(
    tsr_arena *arena, const char *name, const char *from_file, tsr_location location,
    const char **ret_path, tsr_diags *diags);

#endif

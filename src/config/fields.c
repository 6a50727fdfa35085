// SPDX-License-Identifier: Apache-2.0
#include "config/fields.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

static const tsr_field_choice tokenizers[] = {
    {"char", TSR_TOKENS_CHAR}, {"byte", TSR_TOKENS_BYTE}, {"bpe", TSR_TOKENS_BPE}, {0}};
static const tsr_field_choice data_formats[] = {
    {"auto", TSR_DATA_AUTO},
    {"text", TSR_DATA_TEXT},
    {"llmc", TSR_DATA_LLMC},
    {"nanogpt_u16", TSR_DATA_NANOGPT_U16},
    {"nanogpt_u32", TSR_DATA_NANOGPT_U32},
    {"megatron", TSR_DATA_MEGATRON},
    {"tt_train", TSR_DATA_TT_TRAIN},
    {0}};
static const tsr_field_choice documents[] = {
    {"packed", TSR_DOCUMENTS_PACKED}, {"separate", TSR_DOCUMENTS_SEPARATE}, {0}};
static const tsr_field_choice files_formats[] = {
    {"auto", TSR_FILES_AUTO}, {"text", TSR_FILES_TEXT},     {"tokens", TSR_FILES_TOKENS},
    {"chat", TSR_FILES_CHAT}, {"labels", TSR_FILES_LABELS}, {0}};
static const tsr_field_choice trained_parts[] = {
    {"assistant", TSR_TRAINED_ASSISTANT},
    {"last_assistant", TSR_TRAINED_LAST_ASSISTANT},
    {"all", TSR_TRAINED_ALL},
    {0}};
static const tsr_field_choice packings[] = {
    {"best_fit", TSR_PACKING_BEST_FIT}, {"none", TSR_PACKING_NONE}, {0}};
static const tsr_field_choice too_long[] = {
    {"truncate", TSR_TOO_LONG_TRUNCATE}, {"drop", TSR_TOO_LONG_DROP}, {0}};
static const tsr_field_choice runners[] = {
    {"default", TSR_RUNNER_DEFAULT}, {"memory_efficient", TSR_RUNNER_MEMORY_EFFICIENT}, {0}};
static const tsr_field_choice schedulers[] = {
    {"constant", TSR_SCHEDULER_CONSTANT},
    {"identity", TSR_SCHEDULER_CONSTANT},
    {"linear", TSR_SCHEDULER_LINEAR},
    {"warmup_linear", TSR_SCHEDULER_WARMUP_LINEAR},
    {"cosine", TSR_SCHEDULER_COSINE},
    {"wsd", TSR_SCHEDULER_WSD},
    {0}};
static const tsr_field_choice lr_schedules[] = {
    {"constant", TSR_SCHEDULER_CONSTANT},
    {"warmup_constant", TSR_SCHEDULER_WSD},
    {"linear", TSR_SCHEDULER_LINEAR},
    {"cosine", TSR_SCHEDULER_COSINE},
    {0}};
static const tsr_field_choice optimizers[] = {
    {"AdamW", TSR_OPTIMIZER_ADAMW},
    {"adamw", TSR_OPTIMIZER_ADAMW},
    {"MorehAdamW", TSR_OPTIMIZER_ADAMW},
    {"AdamWComposite", TSR_OPTIMIZER_ADAMW},
    {"AdamWFullPrecision", TSR_OPTIMIZER_ADAMW},
    {"Adam", TSR_OPTIMIZER_ADAM},
    {"adam", TSR_OPTIMIZER_ADAM},
    {"SGD", TSR_OPTIMIZER_SGD},
    {"SGDComposite", TSR_OPTIMIZER_SGD},
    {"NoOp", TSR_OPTIMIZER_NOOP},
    {"Muon", TSR_OPTIMIZER_NOOP, "the Muon optimizer"},
    {"MuonWithAdamW", TSR_OPTIMIZER_NOOP, "the Muon optimizer"},
    {0}};
static const tsr_field_choice policies[] = {
    {"deterministic", TSR_NUMERICS_DETERMINISTIC}, {"fast", TSR_NUMERICS_FAST}, {0}};
static const tsr_field_choice trees[] = {
    {"binary", TSR_REDUCE_TREE_BINARY},
    {"flat", TSR_REDUCE_TREE_FLAT},
    {"ring", TSR_REDUCE_TREE_RING},
    {0}};
static const tsr_field_choice tp_reductions[] = {
    {"f32", TSR_TP_REDUCTIONS_F32}, {"half", TSR_TP_REDUCTIONS_HALF}, {0}};
static const tsr_field_choice positions[] = {
    {"trainable", 0}, {"fixed", 1, "fixed positional embeddings"}, {0}};
static const tsr_field_choice cp_backwards[] = {
    {"two_pass", 0}, {"cyclic", 1}, {"cyclic_in_place", 2}, {0}};
static const tsr_field_choice transports[] = {
    {"auto", TSR_TRANSPORT_AUTO},
    {"mpi", TSR_TRANSPORT_MPI},
    {"nccl", TSR_TRANSPORT_NCCL},
    {"nvshmem", 0,
     "one-sided messages between GPUs (nvshmem), which only the all-to-all of experts uses\n"
     "experts gather their tokens instead, over nccl or mpi, and auto chooses between them"},
    {"deepep", 0,
     "the all-to-all of experts over NVSHMEM (deepep)\n"
     "experts gather their tokens instead, over nccl or mpi, and auto chooses between them"},
    {0}};
static const tsr_field_choice all_reduce_algorithms[] = {
    {"auto", TSR_ALL_REDUCE_AUTO},
    {"tree", TSR_ALL_REDUCE_TREE},
    {"hier", TSR_ALL_REDUCE_HIER},
    {"ring", TSR_ALL_REDUCE_RING},
    {0}};
static const tsr_field_choice validations[] = {
    {"none", TSR_VALIDATE_NONE}, {"replicas", TSR_VALIDATE_REPLICAS}, {0}};
static const tsr_field_choice validate_policies[] = {
    {"stop", TSR_VALIDATE_STOP}, {"warn", TSR_VALIDATE_WARN}, {"resume", TSR_VALIDATE_RESUME}, {0}};
static const tsr_field_choice expert_placements[] = {
    {"blocks", 0},
    {"table", 1,
     "a table of experts and ranks, of which few experts move (expert_placement: table)\n"
     "blocks of consecutive experts train on any number of ranks after a resume, too"},
    {0}};
static const tsr_field_choice epochs[] = {{"soft", 0}, {"hard", 1}, {0}};
static const tsr_field_choice pack_dtypes[] = {{"fp8_e4m3", 0}, {"bf16", 1}, {"f32", 2}, {0}};
static const tsr_field_choice cp_transports[] = {{"direct", 0}, {0}};
static const tsr_field_choice resumes[] = {
    {"never", TSR_RESUME_NEVER}, {"auto", TSR_RESUME_AUTO}, {0}};
static const tsr_field_choice safe_points[] = {
    {"step", TSR_SAFE_STEP}, {"pipeline_boundary", TSR_SAFE_PIPELINE}, {0}};
static const tsr_field_choice device_kinds[] = {
    {"cpu", TSR_DEVICE_CPU}, {"cuda", TSR_DEVICE_CUDA}, {"auto", TSR_DEVICE_AUTO}, {0}};
static const tsr_field_choice cp_layouts[] = {
    {"contiguous", TSR_CP_CONTIGUOUS}, {"zigzag", TSR_CP_ZIGZAG}, {0}};
static const tsr_field_choice precisions[] = {
    {"f32", TSR_PRECISION_F32},
    {"bf16", TSR_PRECISION_BF16},
    {"fp16", TSR_PRECISION_FP16},
    {"fp8", TSR_PRECISION_FP8},
    {0}};
static const tsr_field_choice fp8_gradients[] = {
    {"e4m3", TSR_GRADIENTS_E4M3}, {"e5m2", TSR_GRADIENTS_E5M2}, {0}};
static const tsr_field_choice fp8_scales[] = {
    {"power_of_two", TSR_SCALES_POWER_OF_TWO}, {"f32", TSR_SCALES_F32}, {0}};
static const tsr_field_choice scale_modes[] = {
    {"tessera", TSR_SCALE_TESSERA},
    {"interval", TSR_SCALE_INTERVAL},
    {"static", TSR_SCALE_STATIC},
    {0}};
static const tsr_field_choice overlaps[] = {
    {"true", TSR_OVERLAP_ON}, {"false", TSR_OVERLAP_OFF}, {"auto", TSR_OVERLAP_AUTO}, {0}};
static const tsr_field_choice recomputes[] = {
    {"none", TSR_RECOMPUTE_NONE},           {"full", TSR_RECOMPUTE_FULL},
    {"selective", TSR_RECOMPUTE_SELECTIVE}, {"cheap", TSR_RECOMPUTE_CHEAP},
    {"auto", TSR_RECOMPUTE_AUTO},           {0}};
static const tsr_field_choice activation_offloads[] = {
    {"none", TSR_ACTIVATION_OFFLOAD_NONE}, {"blocks", TSR_ACTIVATION_OFFLOAD_BLOCKS}, {0}};
static const tsr_field_choice balances[] = {
    {"flops", TSR_BALANCE_FLOPS}, {"memory", TSR_BALANCE_MEMORY}, {"auto", TSR_BALANCE_FLOPS}, {0}};
static const tsr_field_choice pipeline_axes[] = {{"pp", TSR_PP}, {0}};
static const tsr_field_choice offloads[] = {
    {"none", TSR_OFFLOAD_NONE},
    {"file", TSR_OFFLOAD_FILE},
    {"cpu", TSR_OFFLOAD_FILE},
    {"nvme", TSR_OFFLOAD_FILE},
    {0}};
static const tsr_field_choice partitions[] = {
    {"flat", TSR_PARTITION_FLAT},
    {"owner_hash", TSR_PARTITION_OWNER_HASH},
    {"dimension", TSR_PARTITION_FLAT},
    {0}};
static const tsr_field_choice lora_bases[] = {
    {"none", TSR_LORA_BASE_PLAIN}, {"nf4", TSR_LORA_BASE_NF4}, {0}};
static const tsr_field_choice lora_biases[] = {
    {"none", TSR_LORA_BIAS_NONE},
    {"all", TSR_LORA_BIAS_ALL},
    {"lora_only", TSR_LORA_BIAS_LORA_ONLY},
    {0}};
static const tsr_field_choice sockets[] = {{"mpi", 0}, {"fabric", 1}, {0}};

#define T "training_config"
#define O "training_config.optimizer"
#define S "scheduler_config"
#define D "device_config"
#define M "mesh"
#define E "eval_config"
#define N "numerics"
#define U "numerics.units"
#define C "schedule"
#define L "logging_config"
#define F "transformer_config"
#define P "mlp_config"
#define PIPE "pipeline"
#define Z "zero"
#define K "checkpoint"
#define W "collectives"
#define WT "collectives.transport"
#define WR "collectives.all_reduce"
#define X "elastic"
#define A "lora_config"
#define DATA "data"
#define SCALE "training_config.loss_scale"
#define FP8 "training_config.fp8"
#define HOSTS "multihost_config"
#define HOSTS_PIPE "multihost_config.pipeline_parallel_config"

#define INT TSR_FIELD_INT
#define SEED TSR_FIELD_SEED
#define FLOAT TSR_FIELD_FLOAT
#define BOOL TSR_FIELD_BOOL
#define TEXT TSR_FIELD_TEXT
#define PATH TSR_FIELD_PATH
#define CHOICE TSR_FIELD_CHOICE
#define BYTES TSR_FIELD_BYTES
#define SHAPE TSR_FIELD_SHAPE
#define IDS TSR_FIELD_IDS
#define AXES TSR_FIELD_AXES
#define STAGES TSR_FIELD_STAGES
#define BLOCKS TSR_FIELD_BLOCKS
#define SOURCES TSR_FIELD_SOURCES
#define NAMES TSR_FIELD_NAMES
#define NUMBERS TSR_FIELD_NUMBERS
#define SECTION TSR_FIELD_SECTION
#define FREE TSR_FIELD_FREE

#define AT(member) offsetof(tsr_config, member)
#define AT_LEAST_(low)                                                                             \
  { (low), INFINITY, false, true }
#define AT_LEAST(low) .range = AT_LEAST_(low)
#define ABOVE(low) .range = {(low), INFINITY, true, true}
#define FROM_TO(low, high) .range = {(low), (high), false, false}
#define FROM_TO_OPEN(low, high) .range = {(low), (high), false, true}
#define OPEN_TO(low, high) .range = {(low), (high), true, false}
/* What is planned for each sample, token, microbatch and unit of a step must fit into memory. */
#define LENGTH_MAX 16777216   /* of a batch, of a sequence */
#define COUNT_MAX 65536       /* of microbatches, of tp's units */
#define TOKENS_MAX 2147483647 /* of a text that is sampled */
#define ANY .range = {-INFINITY, INFINITY, true, true}
#define NO_EFFECT(reason) .verdict = TSR_FIELD_NO_EFFECT, .why = (reason)
#define UNSUPPORTED(feature) .verdict = TSR_FIELD_UNSUPPORTED, .why = (feature)
#define LEGACY(now) .legacy = true, .why = (now), .doc = "An old key of tt-train: " now "."
#define MODEL_DOC                                                                                  \
  .doc = "The model: a file with transformer_config or mlp_config, or such sections."
#define EXPERTS_ONLY(key)                                                                          \
  UNSUPPORTED("the all-to-all of experts (" key                                                    \
              ")\nexperts gather the tokens of their group instead, without it")
#define NO_FSDP "it tunes tt-train's own collectives"
#define NO_DIFFUSION "it belongs to diffusion training"

const tsr_field tsr_fields[] = {
#include "config/fields.def"
};
const int tsr_fields_count = sizeof tsr_fields / sizeof *tsr_fields;
_Static_assert(sizeof tsr_fields / sizeof *tsr_fields <= TSR_FIELDS_MAX, "TSR_FIELDS_MAX");

int tsr_field_find(const char *section, size_t section_length, const char *key) {
  for (int i = 0; i < tsr_fields_count; i++) {
    const tsr_field *f = &tsr_fields[i];
    if (*f->key == *key && !strcmp(f->key, key) && strlen(f->section) == section_length &&
        !memcmp(f->section, section, section_length))
      return i;
  }
  return -1;
}

const char *tsr_field_section(const char *key) {
  for (int i = 0; i < tsr_fields_count; i++)
    if (!strcmp(tsr_fields[i].key, key)) return tsr_fields[i].section;
  return NULL;
}

int tsr_field_find_dotted(const char *dotted_key) {
  const char *dot = strrchr(dotted_key, '.');
  return dot ? tsr_field_find(dotted_key, (size_t)(dot - dotted_key), dot + 1)
             : tsr_field_find("", 0, dotted_key);
}

const char *tsr_field_dotted_key(tsr_arena *arena, const tsr_field *f) {
  return *f->section ? tsr_arena_printf(arena, "%s.%s", f->section, f->key) : f->key;
}

const char *tsr_field_choice_name(const tsr_field *field, int value) {
  for (const tsr_field_choice *c = field->choices; c->name; c++)
    if (c->value == value) return c->name;
  return "";
}

/* A row without a range has zeros in it. */
static bool has_range(const tsr_field *f) { return f->range.min < f->range.max; }

void tsr_field_range_describe(const tsr_field *field, tsr_text *text) {
  const tsr_field_range *r = &field->range;
  if (!has_range(field)) return;
  bool low = isfinite(r->min), high = isfinite(r->max);
  if (low) tsr_text_add(text, "%s %.15g", r->min_open ? "above" : "at least", r->min);
  if (low && high) tsr_text_add(text, " and ");
  if (high) tsr_text_add(text, "%s %.15g", r->max_open ? "below" : "at most", r->max);
}

static void describe_choices(const tsr_field *f, tsr_text *text) {
  tsr_text_add(text, "one of ");
  bool first = true;
  for (const tsr_field_choice *c = f->choices; c->name; c++) {
    if (c->unsupported) continue;
    tsr_text_add(text, "%s%s", first ? "" : ", ", c->name);
    first = false;
  }
}

void tsr_field_describe(const tsr_field *field, tsr_text *text) {
  static const char *const words[] = {
      [INT] = "an integer",
      [SEED] = "an integer",
      [FLOAT] = "a number",
      [BOOL] = "true or false",
      [TEXT] = "a text",
      [PATH] = "a path",
      [CHOICE] = "",
      [BYTES] = "a count of bytes or a text like 8GiB",
      [SHAPE] = "a list of 1 to 4 integers",
      [IDS] = "a list of integers",
      [AXES] = "a list of axis names",
      [STAGES] = "a list of nodes or of maps {name, begin}",
      [BLOCKS] = "a list of integers or a map {rank: integer}",
      [SOURCES] = "a list of paths or of maps {path, weight, format}",
      [NAMES] = "a text or a list of texts",
      [NUMBERS] = "a map {name: number}",
      [SECTION] = "a map",
      [FREE] = "a value",
  };
  if (field->type == CHOICE) {
    describe_choices(field, text);
    return;
  }
  tsr_text_add(text, "%s", words[field->type]);
}

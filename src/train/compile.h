// SPDX-License-Identifier: Apache-2.0
/* From a configuration to a program: the pipeline, as one straight function. */
#ifndef TSR_TRAIN_COMPILE_H
#define TSR_TRAIN_COMPILE_H
#include "model/model.h"
#include "parallel/parallel.h"
#include "passes/passes.h"
#include "schedule/target.h"
#include "train/pipeline_partition.h"

typedef enum { TSR_COMPILE_TRAIN, TSR_COMPILE_EVALUATE, TSR_COMPILE_GENERATE } tsr_compile_purpose;

/* What can be read after a step of training, beside the loss and `clip`. */
typedef enum {
  TSR_OUTPUTS_LOSS,
  TSR_OUTPUTS_GRADIENTS, /* d.NAME: a parameter's gradient, complete and before clipping */
  TSR_OUTPUTS_VALUES /* v.INDEX: what each forward and backward node makes, of the last microbatch
                      */
} tsr_compile_outputs;

/* Of generation: for each number of texts one that reads chunks and one that decodes; and one that
 * scores. */
enum { TSR_TEXT_COUNTS_MAX = 10, TSR_GENERATION_PROGRAMS_MAX = 2 * TSR_TEXT_COUNTS_MAX + 1 };
/* Of one run: training, evaluation, generation. */
enum { TSR_COMPILED_PROGRAMS_MAX = 2 + TSR_GENERATION_PROGRAMS_MAX };

typedef struct {
  const tsr_config *config;
  const tsr_parallel *parallel;
  int64_t batch_units, tp_units;         /* the recipe's (tsr_parallel_units) */
  int64_t vocab_detected, vocab_assumed; /* as in tsr_model_options */
  const char *graphs_folder;
  const tsr_stage_split
      *split; /* of the training graph, for the others to share its stages; NULL: find it */
  const tsr_graph *split_of;             /* the training graph */
  const tsr_graph *placed_of;            /* the same, placed: where its parameters are stored */
  const tsr_pipeline *training_pipeline; /* and its virtual stages' places */
  tsr_compile_outputs outputs;           /* of training */
  bool keeps_activations;                /* of training: none are in the host's memory */
  bool keeps_logits;                     /* of evaluation: the output `logits` can be read, too, as
                                            that of a model with num_labels always can */
  bool records_routing, replays_routing; /* of training (graph/routing.h) */
  tsr_target target;                     /* what the programs are for */
  tsr_dtype weights; /* of evaluation and generation: the linear layers' (tsr_pass_quantize);
                        TSR_F32: as they are */
  /* of generation; 0: as it says */
  int64_t rows;   /* texts at once, made a multiple of dp (1) */
  int64_t window; /* tokens that the model sees at most (training's sequence_length) */
  int64_t chunk;  /* tokens of each text that one run of the first program takes (64); below 0:
                     no cache */
  int64_t page;   /* positions of a page of the cache, a multiple of TSR_CACHE_PAGE_STEP (16) */
  int64_t pages;  /* of the cache, for all texts at once (as many as `rows` long texts need) */
  bool scores;    /* with a cache: also a program whose logits are those of each new token */
} tsr_compile_options;

/* The pages that texts have their keys and values in. Row i of the batch takes them from pool
 * i * pools / batch. */
typedef struct {
  int64_t page, pages_each; /* positions of a page; entries of a row in the table */
  int64_t pools, pages;     /* ranks that share the batch out; pages of each one's pool */
  int64_t pages_max;        /* that a text needs at once, however long it is */
} tsr_cache_plan;

/* Pages that a text of so many tokens needs. Where all attention has a window they come round: page
 * i of the text is page i % pages_max of what it has. */
static inline int64_t tsr_cache_plan_pages(const tsr_cache_plan *plan, int64_t tokens) {
  int64_t pages = tsr_cache_pages_each(tokens, plan->page);
  return pages < plan->pages_max ? pages : plan->pages_max;
}

typedef struct tsr_compiled {
  tsr_model *model;
  tsr_graph *graph; /* before placement: forward, and for training backward and updates */
  tsr_graph *placed;
  tsr_stage_split split;
  tsr_programs programs; /* one a stage */
  int64_t batch;         /* samples of a microbatch, over all of dp */
  int64_t samples;       /* of an evaluation: the first so many numbers of the loss add up to it */
  bool joins_samples;    /* of one: it cannot have a number for each sample */
  bool has_logits;      /* of tokens: the graph file has an output of that name, which text is drawn
                            from */
  int64_t logits_width; /* numbers of a row of that output, with padding; 0: there is none */
  /* Of generation with a cache (tsr_pass_cache): this program takes `new_tokens` of each text, and
   * `decode` one. Else new_tokens is 0, decode NULL, and every token takes the whole window. */
  int64_t new_tokens;
  struct tsr_compiled *decode;
  struct tsr_compiled *score; /* where it is wanted: logits of each of its own `new_tokens` */
  struct tsr_compiled *fewer; /* of this program and of `decode`: the same for fewer texts at once,
                                 on targets where a text's bits are the same; NULL: there is none */
  tsr_cache_plan cache;       /* all have this one */
  const char *why_no_cache;   /* of generation that has none */
} tsr_compiled;

/* What tsr_compile reads the model with. */
tsr_model_options
tsr_compile_model(const tsr_compile_options *options, tsr_compile_purpose purpose, int64_t batch);

/* The model of a configuration, with its adapters. */
bool tsr_compile_read_model(
    tsr_arena *arena, const tsr_config *config, const tsr_model_options *options,
    tsr_model **ret_model, tsr_diags *diags);

/* Without a loss (a hand-written graph) there is nothing to train: the program is the graph once
 * forward, whatever the purpose. Generation is two programs where the graph allows a cache. */
bool tsr_compile(
    tsr_arena *arena, const tsr_compile_options *options, tsr_compile_purpose purpose,
    tsr_compiled *ret_compiled, tsr_diags *diags);

#endif

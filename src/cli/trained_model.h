// SPDX-License-Identifier: Apache-2.0
/* A trained model that evaluate, generate and serve use: a checkpoint's weights on this command's
 * mesh. */
#ifndef TSR_CLI_TRAINED_MODEL_H
#define TSR_CLI_TRAINED_MODEL_H
#include "base/hash.h"
#include "checkpoint/folder.h"
#include "cli/console.h"
#include "report/comm_trace.h"
#include "runtime/process.h"
#include "train/text_batch.h"

typedef struct {
  app *a;
  setup setup;
  tsr_manifest weights;
  tsr_manifest base; /* of a run with adapters: where its frozen parameters are */
  bool has_base;
  const char *adapter_hash;         /* of --adapter; NULL: none */
  tsr_checkpoint_hold hold;         /* until the weights are loaded */
  tsr_run_data data;                /* data, or the tokenizer alone */
  char prompts_hash[TSR_HASH_TEXT]; /* of prompts and of what ends a text; "": there are none */
  bool has_own_config;              /* --config, not the checkpoint's */
  bool keeps_units;                 /* the user has given numerics.units */
  tsr_process *process;
  tsr_executable *executable[TSR_GENERATION_PROGRAMS_MAX];
  bool traces; /* TESSERA_COMM_TRACE: the communication of each pass goes to stderr */
  tsr_comm_trace comm_trace;
  int64_t passes; /* that were traced */
} trained_model;

/* Whether a checkpoint has all parameters of its model. Error: it has those of adapters alone. */
bool trained_model_check_whole(app *a, const tsr_manifest *weights, tsr_location location);
/* Finds the checkpoint, loads its configuration (or --config), and decides all that setup has. The
 * mesh is one rank unless a --set lays out ranks. Collective. */
bool trained_model_open(trained_model *m);
/* The positions that the model has at most: its key max_sequence_length; 0: it has no such key. */
int64_t trained_model_positions(const trained_model *m);
/* Errors: a model that tells classes of documents apart, at its num_labels. */
bool trained_model_check_tokens(const trained_model *m, const tsr_compiled *compiled);
/* Errors: that, or a model without an output `logits`. */
bool trained_model_check_generates(const trained_model *m, const tsr_compiled *compiled);
/* Memory for the programs of `compiled`, with the checkpoint's parameters. Collective. */
bool trained_model_load(
    trained_model *m, const tsr_compiled *compiled, const tsr_programs *programs, int count);
/* Processes must not stop at different tokens: of several a signal is left to the launcher. */
const volatile sig_atomic_t *trained_model_interrupt(const trained_model *m);
/* Prints diagnostics and frees everything; returns the exit code. */
int trained_model_finish(trained_model *m, bool ok);

#endif

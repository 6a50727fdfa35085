// SPDX-License-Identifier: Apache-2.0
/* That the processes of a job do the same thing. */
#ifndef TSR_CLI_JOB_CONSISTENCY_H
#define TSR_CLI_JOB_CONSISTENCY_H
#include "base/hash.h"
#include "checkpoint/manifest.h"
#include "cli/run_setup.h"
#include "report/run_lock.h"
#include "train/compile.h"
#include "train/run_data.h"

/* The files that every process reads by itself. */
typedef struct {
  const tsr_manifest *checkpoint; /* whose weights are loaded; NULL: none */
  const tsr_manifest *base;       /* whose weights the checkpoint's adapters go with; NULL: none */
  const char *adapter_hash;       /* of PEFT's file of weights; NULL: none is read */
  const tsr_run_data *data;       /* or its tokenizer alone; NULL: none */
  const char *prompts_hash;       /* of the prompts' tokens and what ends a text; NULL: none */
  const tsr_run_lock *lock;       /* whose steps are repeated; NULL: none is read */
  int64_t locked_last;            /* the last of them */
  const char *routing_hash;       /* of the choices of experts that are replayed; NULL: none */
} consistency_inputs;

/* Collective: all processes have the same build, command line, checkpoint, configuration, graph
 * file, mesh, plan, data, prompts and run.lock; an error with the first difference otherwise. Then
 * the devices' communicators and, under policy fast, the transport's groups are formed. */
bool consistency_check(
    app *a, setup *s, const tsr_compiled *compiled, const consistency_inputs *inputs);

#endif

// SPDX-License-Identifier: Apache-2.0
/* From a setup to the programs of a run: data as far as shapes need them, model, compilation. */
#ifndef TSR_CLI_RUN_COMPILE_H
#define TSR_CLI_RUN_COMPILE_H
#include "cli/run_setup.h"
#include "plan/machine.h"
#include "train/compile.h"
#include "train/plan_run.h"
#include "train/run_data.h"

typedef struct {
  bool has_read_model; /* whether its diagnostics have been added */
  bool has_data;
  tsr_run_data data;
  tsr_compiled training, evaluation, generation; /* without `placed`: not part of the run */
  tsr_machine *machine;                          /* of plan */
  const char *machine_why;
} prepared;

/* Everything that is decided before the first step. Stages that do not depend on one that failed
 * run all the same, so that one run reports as many errors as it can. */
bool prepare(app *a, setup *s, prepared *p);
/* After a stage has failed: adds the diagnostics of the model, unless they have been added. */
void prepare_explain_model(app *a, const setup *s, const prepared *p);
/* What a plan of the programs is made of; it points to them. */
tsr_plan_request prepare_plan_request(app *a, const setup *s, const prepared *p);
/* Compilation of a model with the tokenizer of `data`; NULL: there are none. */
tsr_compile_options prepare_compile_options(app *a, const setup *s, const tsr_run_data *data);

#endif

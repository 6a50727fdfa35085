// SPDX-License-Identifier: Apache-2.0
/* What every command starts with. Each command is one function; the results of its stages are
 * passed from one stage to the next. Private to main and this folder. */
#ifndef TSR_CLI_APP_H
#define TSR_CLI_APP_H
#include "cli/options.h"
#include "job/job.h"
#include <signal.h>

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  tsr_options options;
  const char *share; /* the folder that holds configs/ and mesh_descriptors/ */
  tsr_job job;
  volatile sig_atomic_t *stop, *save_now; /* set by signals: the number; whether to checkpoint */
} app;

/* From now on SIGINT, SIGTERM, SIGHUP and SIGUSR1 are requests in app.stop and app.save_now, and a
 * closed pipe is an error of the write. */
void app_catch_signals(void);
/* The same, and a signal makes writes of files fail, so that the command removes what it has begun.
 */
void app_stop_files_on_signals(app *a);
/* Joins the job (tsr_job_join); `ok`: this process has not failed before. A process that another
 * one prints for is quiet. */
bool app_join(app *a, bool ok);
const char *app_graphs_folder(const app *a);

/* ---- the commands; each returns the exit code ---- */

int app_run_train(app *a); /* and profile */
int app_run_verify(app *a);
int app_run_lock(app *a);
int app_run_compare(app *a);
int app_run_report(app *a);
int app_run_watch(app *a);
int app_run_sweep(app *a);
int app_run_inspect(app *a);
int app_run_check(app *a);
int app_run_plan(app *a);
int app_run_trace(app *a);
int app_run_evaluate(app *a);
int app_run_generate(app *a);
int app_run_serve(app *a);
int app_run_checkpoint(app *a);
int app_run_import(app *a);
int app_run_export(app *a);
int app_run_tokenize(app *a);
int app_run_data(app *a);
int app_run_kernels(app *a);
int app_run_doctor(app *a);

#endif

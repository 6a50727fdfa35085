/* What the commands share: the stages from a configuration to a program, each of which leaves its
 * result here. Private to main and the commands. */
#ifndef TSR_APP_H
#define TSR_APP_H
#include "checkpoint/manifest.h"
#include "cli.h"
#include "config/config.h"
#include "mesh/mesh.h"
#include "plan/machine.h"
#include "train/trainer.h"

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  tsr_cli cli;
  const char *share; /* the folder that holds configs/ and mesh_descriptors/ */
  tsr_config *config;
  tsr_mesh *mesh;
  const char *mesh_why;
  tsr_parallel *parallel;
  const tsr_kernels *kernels;
  tsr_cpu_context cpu;
  const struct tsr_cuda_table *cuda; /* NULL: on the CPU */
  const tsr_device *device;          /* of commands that compute; NULL: the CPU */
  int64_t batch_units, tp_units;
  tsr_source source;
  bool has_source, has_read_model;
  tsr_compiled training, evaluation, generation;
  tsr_transport transport; /* to the other workers of the job, where there are any */
  tsr_hosting hosting;
  bool muted;           /* another worker speaks for all */
  bool others_failed;   /* and this one has not */
  int job_code;         /* of the first worker that has failed, as far as heard: all end with it */
  bool others_silent;   /* the job can only be ended */
  bool has_agreed;      /* with all others, that this is the end */
  bool has_heard;       /* from the others whether they fail, too */
  bool must_end;        /* some have not, and may wait for this one */
  bool ends_last;       /* this process, with a code that is no failure's */
  tsr_machine *machine; /* that a plan is for */
  const char *machine_why;
  char input[TSR_HASH_TEXT]; /* of the data or prompts; "": none */
  const char *first_owner;   /* what worker 0 marks its folders with, of many workers */
  volatile sig_atomic_t *stop, *save_now; /* set by signals */
} app;

/* ---- prepare.c: everything that is decided before the first step ---- */

bool app_load_config(app *a);
bool app_open_mesh(app *a);
bool app_build_context(app *a);
bool app_fix_recipe(app *a);
/* From a loaded configuration to the programs of training. What does not depend on a stage that
 * failed is looked at all the same, so that one run shows as many mistakes as it can. */
bool app_prepare(app *a);
/* When a stage has failed: the model's own mistakes, so that one run shows them too. */
void app_explain_model(app *a);
const char *app_graphs_folder(const app *a);
/* What tsr_compile wants of what was decided. */
tsr_compile_options app_compile_options(const app *a);

/* ---- devices.c: the device that this worker computes on ---- */

/* Kernels and threads of the host. */
bool app_choose_device(app *a);
/* That this machine runs the level that TESSERA_ISA names, if it does. */
bool app_check_level(app *a);
/* From a loaded configuration: the CPU, or CUDA devices, and the precision that is usual there. */
bool app_choose_kind(app *a);
/* Opens this worker's device, of commands that compute; when ranks are laid on workers. */
bool app_open_device(app *a);
/* All workers together, whose devices are open: what they send goes from device to device, where
 * NCCL is there, each has a device of its own and is of one stage; else through the host. */
bool app_link_devices(app *a);
void app_close_device(app *a);

/* ---- workers.c: one process among several ---- */

/* Of commands that workers do together: joins the job that started this process, if one did. */
bool app_join(app *a);
/* Of other commands: that what they write is written by one process. */
bool app_check_alone(app *a);
/* Whether workers do the command together. */
bool app_is_joint(const app *a);
/* Ranks on workers, and threads by what each may use of its host. Needs the parallelism context. */
bool app_lay_ranks(app *a);
/* Whether all workers got as far as this one; if not, this one has said why, or another one
 * will. */
bool app_all_well(app *a, bool ok);
/* That all workers run the same program on the same configuration, mesh and plan; else an error on
 * those that differ from worker 0, with the first line that does. */
bool app_agree(app *a);
/* Every worker's `bytes` bytes, in `all`, on all workers; false when some do not answer. */
bool app_gather(app *a, const void *mine, int64_t bytes, void *all);
/* From now on the process may be in a library's hands for so long; it ends when that is over. */
void app_set_deadline(double seconds, const char *what);
void app_end_deadline(void);
/* Threads for this worker: the cores that it may use, shared with the workers that may use the
 * same. */
int app_threads(app *a);
/* Called when other workers do not answer, or the device fails: says so, and ends the job. */
void app_lost(void *app, const char *report);
/* Before a failure is printed that the others may not have. */
void app_hear_failures(app *a, int code);
/* Ends this worker's part of the job; the exit code, which is not 0 where another one's is not. */
int app_leave(app *a, int code);

/* ---- show.c: what is printed of it ---- */

void app_print(tsr_text *text); /* to the standard output; frees it */
/* Whether the command's results are files; those of others are what they print. */
bool app_writes_files(const app *a);
void app_print_dumps(const app *a);
void app_print_start(const app *a);
void app_print_plan(const app *a);
const char *app_mesh_text(app *a); /* "dp=2 tp=2" */
/* Prints the diagnostics; the exit code. What failed (`ok` is false) has said why; that it has not
 * is an internal error, of the function that calls this. */
int app_finish_in(app *a, bool ok, const char *function);
#define app_finish(a, ok) app_finish_in((a), (ok), __func__)

/* ---- main.c ---- */

/* From now on SIGINT, SIGTERM, SIGHUP and SIGUSR1 are requests that a->stop and a->save_now show,
 * and a closed pipe is an error. */
void app_catch_signals(void);

/* ---- the commands; each gives the exit code ---- */

int app_run_train(app *a); /* and profile */
int app_run_inspect(app *a);
int app_run_check(app *a);
int app_run_plan(app *a);
int app_run_trace(app *a);
int app_run_evaluate(app *a);
int app_run_generate(app *a);
int app_run_checkpoint(app *a);
int app_run_import(app *a);
int app_run_export(app *a);
int app_run_tokenize(app *a);
int app_run_kernels(app *a);
int app_run_doctor(app *a);

#endif

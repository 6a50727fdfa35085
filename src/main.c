// SPDX-License-Identifier: Apache-2.0
/* Parses the command line and dispatches. Only main and src/cli print diagnostics and decide the
 * exit code. */
#include "cli/console.h"
#include "cli/launcher_check.h"
#include "base/command_progress.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/terminal_line.h"
#include "config/manual.h"
#include "config/print.h"
#include "config/schema.h"
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t stop, save_now;
static void on_stop(int number) { stop = number; }
static void on_save(int number) { save_now = number; }

/* Where the shipped files are: beside the build folder, or installed. */
static const char *find_share(tsr_arena *arena) {
  const char *named = getenv("TESSERA_SHARE");
  if (named && *named) return named;
  char exe[4096];
  ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  if (n < 0) return ".";
  exe[n] = 0;
  const char *folder = tsr_path_folder(arena, exe);
  for (int i = 0; i < 2; i++) {
    char path[4200];
    snprintf(path, sizeof path, i ? "%s/../share/tessera-train" : "%s/..", folder);
    const char *probe = tsr_arena_printf(arena, "%s/configs/graphs", path);
    char real[PATH_MAX];
    if (tsr_file_exists(probe) && realpath(path, real)) return tsr_arena_strdup(arena, real);
  }
  return ".";
}

static void write_error(const char *text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) { /* nothing is left to do */
  }
}

/* Before there is anything to save. */
static void on_early(int number) {
  const char *file = tsr_file_waited_for();
  if (tsr_command_progress_is_shown()) write_error(TSR_TERMINAL_LINE_CLEAR);
  write_error("tessera-train: ended by a signal");
  if (file) write_error(" while reading '");
  if (file) write_error(file);
  write_error(file ? "'\n" : "\n");
  _exit(128 + number);
}

/* A standard stream that is closed would be the next file's number: it is taken, and fails. */
static void take_closed_streams(void) {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++)
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* A terminal that is closed ends the command, but for one that nohup has started. */
static void catch_ends(void (*handler)(int)) {
  signal(SIGINT, handler);
  signal(SIGTERM, handler);
  if (signal(SIGHUP, handler) == SIG_IGN) signal(SIGHUP, SIG_IGN);
}

/* A limit of file sizes is an error of the write, which reports the place. */
static void catch_early_signals(void) {
  signal(SIGUSR1, SIG_IGN); /* there is nothing to save yet */
  signal(SIGXFSZ, SIG_IGN);
  catch_ends(on_early);
}

void app_catch_signals(void) {
  catch_ends(on_stop);
  signal(SIGUSR1, on_save);
  signal(SIGPIPE, SIG_IGN);
}

void app_stop_files_on_signals(app *a) {
  app_catch_signals();
  tsr_disk_stop_on(a->stop);
}

bool app_join(app *a, bool ok) {
  bool all = tsr_job_join(&a->job, tsr_command_name(a->options.command), ok);
  if (a->job.is_silent) {
    a->options.quiet = true;
    tsr_command_progress_disable();
  }
  return all;
}

const char *app_graphs_folder(const app *a) {
  return tsr_arena_printf(a->arena, "%s/configs/graphs", a->share);
}

/* Of commands that the processes of a job do not run together: those that write files, or take a
 * port, are for one process. */
static bool check_processes(app *a) {
  const tsr_options *o = &a->options;
  bool serves = o->command == TSR_COMMAND_SERVE || o->command == TSR_COMMAND_WATCH;
  if (!(o->out || o->svg || o->html || o->calibration || serves)) return true;
  return tsr_job_require_one_process(&a->job, tsr_command_name(o->command));
}

static int print_config(app *a) {
  tsr_text text = {0};
  setup s = {0};
  bool ok = setup_load_config(a, &s);
  if (ok) tsr_config_print(s.config, &text);
  console_print(&text);
  return console_finish(a, ok);
}

/* What options print instead of running a command; false: no such option is given. */
static bool print_instead(app *a, int *ret_code) {
  const tsr_options *o = &a->options;
  tsr_text text = {0};
  if (o->help) tsr_options_print_help(o);
  else if (o->version) printf("tessera-train %s\n", TSR_VERSION);
  else if (o->print_schema) tsr_config_schema(&text);
  else if (o->print_manual) tsr_config_manual(&text);
  else if (o->print_config) return *ret_code = print_config(a), true;
  else return false;
  console_print(&text);
  *ret_code = console_finish(a, true);
  return true;
}

/* The other processes of the job wait for this one. */
static int fail_in_job(app *a) {
  app_join(a, false);
  return console_finish(a, false);
}

static int run_command(app *a) {
  static int (*const commands[TSR_COMMANDS])(app *) = {
      [TSR_COMMAND_TRAIN] = app_run_train,       [TSR_COMMAND_CHECK] = app_run_check,
      [TSR_COMMAND_INSPECT] = app_run_inspect,   [TSR_COMMAND_TRACE] = app_run_trace,
      [TSR_COMMAND_PROFILE] = app_run_train,     [TSR_COMMAND_PLAN] = app_run_plan,
      [TSR_COMMAND_EVALUATE] = app_run_evaluate, [TSR_COMMAND_GENERATE] = app_run_generate,
      [TSR_COMMAND_IMPORT] = app_run_import,     [TSR_COMMAND_EXPORT] = app_run_export,
      [TSR_COMMAND_TOKENIZE] = app_run_tokenize, [TSR_COMMAND_CHECKPOINT] = app_run_checkpoint,
      [TSR_COMMAND_DATA] = app_run_data,         [TSR_COMMAND_KERNELS] = app_run_kernels,
      [TSR_COMMAND_DOCTOR] = app_run_doctor,     [TSR_COMMAND_VERIFY] = app_run_verify,
      [TSR_COMMAND_LOCK] = app_run_lock,         [TSR_COMMAND_COMPARE] = app_run_compare,
      [TSR_COMMAND_SERVE] = app_run_serve,       [TSR_COMMAND_REPORT] = app_run_report,
      [TSR_COMMAND_WATCH] = app_run_watch,       [TSR_COMMAND_SWEEP] = app_run_sweep};
  return commands[a->options.command](a);
}

static int run_in_job(app *a, bool valid) {
  if (!valid || !tsr_compute_check_level(a->diags) || !launcher_check_transport(a))
    return fail_in_job(a);
  return run_command(a);
}

/* A command that the processes of a job do not run together, though others may wait for this one.
 * Some begin later than this one. */
static int run_alone(app *a, bool valid) {
  int code;
  if (!launcher_check_siblings(a, true)) return fail_in_job(a);
  if (!valid) return console_finish(a, false);
  if (!print_instead(a, &code)) {
    if (!tsr_compute_check_level(a->diags) || !check_processes(a)) return console_finish(a, false);
    code = run_command(a);
  }
  return launcher_check_siblings(a, false) ? code : fail_in_job(a);
}

static void enable_progress(const tsr_options *o) {
  const double usual_delay_s = 2;
  bool given = o->progress_s >= 0;
  if (!o->quiet && !o->no_progress)
    tsr_command_progress_enable(given ? o->progress_s : usual_delay_s, given);
}

int main(int argc, char **argv) {
  enum { TIMEOUT_S = 60 /* until the configuration has been read */ };
  app a = {.arena = tsr_arena_new(), .stop = &stop, .save_now = &save_now};
  catch_early_signals();
  a.diags = tsr_diags_new(a.arena);
  a.job = (tsr_job){.arena = a.arena, .diags = a.diags, .timeout_s = TIMEOUT_S};
  a.share = find_share(a.arena);
  take_closed_streams();
  bool ok = tsr_options_parse(a.arena, argc, argv, &a.options, a.diags);
  if (console_is_secondary(&a.options)) signal(SIGPIPE, SIG_IGN); /* an error of the write */
  enable_progress(&a.options);
  if (a.options.quiet) tsr_diags_quiet(a.diags);
  if (a.options.strict) tsr_diags_strict(a.diags);
  int code = launcher_joins(&a.options, ok) ? run_in_job(&a, ok) : run_alone(&a, ok);
  code = tsr_job_leave(&a.job, code);
  tsr_arena_free(a.arena);
  return code;
}
